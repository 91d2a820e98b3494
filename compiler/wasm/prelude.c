// What generated kernels use: vectors of four, and WGSL's functions. No library: the module stands alone.
#include <stdbool.h>
#include <wasm_simd128.h>

// Aligned as their elements are: buffers promise no more, and WebAssembly asks for no more.
typedef float vec4 __attribute__((ext_vector_type(4), aligned(4)));
typedef unsigned uvec4 __attribute__((ext_vector_type(4), aligned(4)));
typedef int ivec4 __attribute__((ext_vector_type(4), aligned(4)));
typedef struct {
  vec4 column[4];
} mat4;

// Runs workgroups first to last - 1 of a grid; `buffers` has the bindings' addresses, `table` the symbols' values.
#define KERNEL(export, name)                                                                            \
  __attribute__((export_name(#export))) void name##_##export(                                           \
      void *const *buffers, const int *table, int grid_x, int grid_y, int first, int last)
// In front of a loop whose variables must stay in registers.
#define UNROLLED _Pragma("clang loop unroll(full)")
#define INLINE static inline __attribute__((overloadable, always_inline, unused))

// A constant that stays in a register, where the browser's compiler would make it anew each time around a loop.
INLINE v128_t kept(v128_t x) {
  __asm__("" : "+r"(x));
  return x;
}

INLINE float bits_as_f32(unsigned x) { return ((union { unsigned bits; float value; }){x}).value; }
INLINE float bits_as_f32(int x) { return bits_as_f32((unsigned)x); }
INLINE unsigned bits_as_u32(float x) { return ((union { float value; unsigned bits; }){x}).bits; }
INLINE unsigned bits_as_u32(int x) { return (unsigned)x; }
INLINE int bits_as_i32(float x) { return (int)bits_as_u32(x); }
INLINE int bits_as_i32(unsigned x) { return (int)x; }
#define EACH_VECTOR(X) X(vec4) X(ivec4) X(uvec4)
#define FROM_VECTOR(T)                                                            \
  INLINE vec4 bits_as_vec4(T x) { return (vec4)x; }                               \
  INLINE ivec4 bits_as_ivec4(T x) { return (ivec4)x; }                            \
  INLINE uvec4 bits_as_uvec4(T x) { return (uvec4)x; }                            \
  INLINE vec4 to_vec4(T x) { return __builtin_convertvector(x, vec4); }           \
  INLINE ivec4 to_ivec4(T x) { return __builtin_convertvector(x, ivec4); }        \
  INLINE uvec4 to_uvec4(T x) { return __builtin_convertvector(x, uvec4); }
EACH_VECTOR(FROM_VECTOR)
INLINE ivec4 whole(vec4 x) { return to_ivec4(x); }
INLINE int whole(float x) { return (int)x; }
INLINE vec4 real(ivec4 x) { return to_vec4(x); }
INLINE float real(int x) { return (float)x; }
INLINE ivec4 bits(vec4 x) { return (ivec4)x; }
INLINE int bits(float x) { return bits_as_i32(x); }
INLINE vec4 of_bits(ivec4 x) { return (vec4)x; }
INLINE float of_bits(int x) { return bits_as_f32(x); }

// Exact for every finite half, subnormal ones included.
INLINE float half_to_f32(unsigned x) {
  const float normal = bits_as_f32(((x & 0x7fffu) << 13u) + 0x38000000u);
  const float subnormal = (float)(x & 0x3ffu) * 5.9604644775390625e-8f;
  const float magnitude = (x & 0x7c00u) == 0u ? subnormal : normal;
  return bits_as_f32(bits_as_u32(magnitude) | ((x & 0x8000u) << 16u));
}

INLINE int floor_div(int a, int b) {
  const int q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
INLINE int floor_mod(int a, int b) {
  const int r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#define EACH_SCALAR(X) X(float) X(int) X(unsigned)
#define BETWEEN(T)                                     \
  INLINE T min(T a, T b) { return b < a ? b : a; }     \
  INLINE T max(T a, T b) { return a < b ? b : a; }     \
  INLINE T select(T no, T yes, bool condition) { return condition ? yes : no; }
EACH_SCALAR(BETWEEN)
INLINE bool select(bool no, bool yes, bool condition) { return condition ? yes : no; }
// Of vectors, each place by itself: a comparison of vectors has all bits set where it holds.
#define SELECT_VECTOR(T)                                                                  \
  INLINE T select(T no, T yes, bool condition) { return condition ? yes : no; }           \
  INLINE T select(T no, T yes, ivec4 condition) {                                         \
    return (T)wasm_v128_bitselect((v128_t)yes, (v128_t)no, (v128_t)condition);            \
  }
EACH_VECTOR(SELECT_VECTOR)
INLINE vec4 min(vec4 a, vec4 b) { return (vec4)wasm_f32x4_pmin((v128_t)a, (v128_t)b); }
INLINE vec4 max(vec4 a, vec4 b) { return (vec4)wasm_f32x4_pmax((v128_t)a, (v128_t)b); }
INLINE float clamp(float x, float low, float high) { return min(max(x, low), high); }
INLINE vec4 clamp(vec4 x, float low, float high) { return min(max(x, (vec4)(low)), (vec4)(high)); }

INLINE float abs(float x) { return __builtin_fabsf(x); }
INLINE int abs(int x) { return x < 0 ? -x : x; }
INLINE vec4 abs(vec4 x) { return (vec4)wasm_f32x4_abs((v128_t)x); }
INLINE float floor(float x) { return __builtin_floorf(x); }
INLINE vec4 floor(vec4 x) { return (vec4)wasm_f32x4_floor((v128_t)x); }
INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
INLINE vec4 sqrt(vec4 x) { return (vec4)wasm_f32x4_sqrt((v128_t)x); }
INLINE float inverseSqrt(float x) { return 1.0f / sqrt(x); }
INLINE vec4 inverseSqrt(vec4 x) { return 1.0f / sqrt(x); }

INLINE float sum(vec4 x) { return (x.x + x.y) + (x.z + x.w); }
INLINE int sum(ivec4 x) { return (x.x + x.y) + (x.z + x.w); }
INLINE float largest(vec4 x) { return max(max(x.x, x.y), max(x.z, x.w)); }
// {sum(a), sum(b), sum(c), sum(d)}
#define SUMS(T)                                                                                                       \
  INLINE T sums(T a, T b, T c, T d) {                                                                                 \
    const T ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);               \
    const T cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);               \
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);                 \
  }
SUMS(vec4)
SUMS(ivec4)
INLINE float dot(vec4 a, vec4 b) { return sum(a * b); }
INLINE vec4 product(vec4 v, mat4 m) {
  return (vec4){dot(v, m.column[0]), dot(v, m.column[1]), dot(v, m.column[2]), dot(v, m.column[3])};
}
INLINE vec4 product(mat4 m, vec4 v) {
  return (m.column[0] * v.x + m.column[1] * v.y) + (m.column[2] * v.z + m.column[3] * v.w);
}

// exp(x) = 2^n exp(r), |r| <= log(2) / 2, by a polynomial of degree 6 (relative error below 2^-23). 2^n in two
// factors, as n may be below the smallest exponent. log(x) from x = 2^n m, 2/3 < m <= 4/3, by the series of atanh.
#define ELEMENTARY(F, I)                                                                                   \
  INLINE F power_of_two(I n) { return of_bits((n + 127) << 23); }                                          \
  INLINE F exp(F x) {                                                                                       \
    x = clamp(x, -104.0f, 88.7f);                                                                           \
    const F n = floor(x * 1.44269504f + 0.5f);                                                              \
    const F r = (x - n * 0.693359375f) + n * 2.12194440e-4f;                                                \
    const F tail = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r                 \
                     + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;                    \
    const I e = whole(n), half = e >> 1;                                                                   \
    return (tail * r * r + r + 1.0f) * power_of_two(half) * power_of_two(e - half);                         \
  }                                                                                                         \
  INLINE F log(F x) {                                                                                       \
    const I n = (bits(x) - 0x3f2aaaab) >> 23;                                                               \
    const F m = of_bits(bits(x) - (n << 23));                                                              \
    const F s = (m - 1.0f) / (m + 1.0f), z = s * s;                                                         \
    const F series = (((0.2222222222f * z + 0.2857142857f) * z + 0.4f) * z + 0.6666666667f) * z;            \
    return real(n) * 0.69314718056f + (s * 2.0f + s * series);                                            \
  }                                                                                                         \
  INLINE F tanh_large(F x) { return 1.0f - 2.0f / (exp(x * 2.0f) + 1.0f); }                                 \
  INLINE F tanh_small(F x) {                                                                                \
    const F z = x * x;                                                                                      \
    return ((((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z                     \
             + 1.33314422036e-1f) * z - 3.33332819422e-1f) * z * x + x;                                     \
  }                                                                                                         \
  INLINE F pow(F x, F y) { return exp(y * log(x)); }
ELEMENTARY(float, int)
ELEMENTARY(vec4, ivec4)
INLINE float tanh(float x) { return abs(x) < 0.625f ? tanh_small(x) : tanh_large(x); }
INLINE vec4 tanh(vec4 x) {
  const v128_t small = (v128_t)(abs(x) < 0.625f);
  return (vec4)wasm_v128_bitselect((v128_t)tanh_small(x), (v128_t)tanh_large(x), small);
}
