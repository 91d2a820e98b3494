// Products of activations with packed weights (quantize/packers.py): codes row by row, then the groups' values.

// Elements that share a scale, of the weights and of the activations alike.
enum { GROUP = 32 };

enum { UNSIGNED, SIGNED, F16, BF16, F32 };

typedef struct {
  const unsigned char *codes;
  const unsigned short *values;  // halves: a group's scale, or its scale and minimum
  int rows, columns, bits, zero, code;
  bool has_minimum;
  v128_t nibble;  // 15 in each byte
} Weight;

// Activations as `quantize_activations` gives them.
typedef struct {
  const signed char *codes;
  const float *scales, *sums;
  int tokens;
} Activations;

// Halves in the low 16 bits: shifted into a float's bits, they are too small by 2^112. Exact for every finite one; slow
// for subnormal ones alone, which no good quantizer stores.
INLINE vec4 halves(uvec4 x) {
  const vec4 magnitude = (vec4)((x & 0x7fffu) << 13) * 0x1p112f;
  return (vec4)((uvec4)magnitude | (x & 0x8000u) << 16);
}

// Of a row's groups: the scales, and what every element has beside its code times the scale.
INLINE void read_groups(Weight w, int row, float *scale, float *bias) {
  const int groups = w.columns / GROUP;
  const unsigned short *values = w.values + row * groups * (w.has_minimum ? 2 : 1);
  int g = 0;
  for (; g + 4 <= groups; g += 4) {
    const uvec4 words = w.has_minimum ? *(const uvec4 *)(values + 2 * g) : (uvec4)wasm_u32x4_load16x4(values + g);
    const vec4 s = halves(words);
    *(vec4 *)(scale + g) = s;
    if (w.has_minimum || w.zero) *(vec4 *)(bias + g) = (w.has_minimum ? halves(words >> 16) : (vec4)(0.0f)) - s * w.zero;
  }
  for (; g < groups; g++) {
    const float s = half_to_f32(values[w.has_minimum ? 2 * g : g]);
    scale[g] = s;
    if (w.has_minimum || w.zero) bias[g] = (w.has_minimum ? half_to_f32(values[2 * g + 1]) : 0.0f) - s * w.zero;
  }
}

// A group's 32 codes as bytes, in the order of its activations: of codes of four bits the even ones, then the odd ones.
// `paired` puts those in the order of the elements.
typedef struct {
  v128_t half[2];
} Bytes;
INLINE Bytes bytes_of(Weight w, int row, int g) {
  const unsigned char *at = w.codes + (row * (w.columns / GROUP) + g) * (w.bits * GROUP / 8);
  const v128_t first = wasm_v128_load(at);
  if (w.bits == 4) {
    return (Bytes){{wasm_v128_and(first, w.nibble), wasm_v128_and(wasm_u16x8_shr(first, 4), w.nibble)}};
  }
  return (Bytes){{first, wasm_v128_load(at + 16)}};
}
INLINE Bytes paired(Bytes code) {
  return (Bytes){{
      wasm_i8x16_shuffle(code.half[0], code.half[1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
      wasm_i8x16_shuffle(code.half[0], code.half[1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)}};
}
INLINE v128_t low_words(Weight w, v128_t x) {
  return w.code == SIGNED ? wasm_i16x8_extend_low_i8x16(x) : wasm_u16x8_extend_low_u8x16(x);
}
INLINE v128_t high_words(Weight w, v128_t x) {
  return w.code == SIGNED ? wasm_i16x8_extend_high_i8x16(x) : wasm_u16x8_extend_high_u8x16(x);
}

// Relaxed SIMD multiplies bytes, of which one is below 128.
#ifdef __wasm_relaxed_simd__
INLINE bool multiplies_bytes(Weight w) { return w.code == UNSIGNED && w.bits < 8; }
INLINE ivec4 dot_bytes(v128_t x, v128_t code, ivec4 sum) {
  return (ivec4)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, code, (v128_t)sum);
}
#else
INLINE bool multiplies_bytes(Weight w) { return false; }
INLINE ivec4 dot_bytes(v128_t x, v128_t code, ivec4 sum) { return sum; }
#endif

// The products of a group's codes and activations, in four sums.
INLINE ivec4 dot_group(Weight w, Bytes code, const signed char *x) {
  if (multiplies_bytes(w)) {
    return dot_bytes(wasm_v128_load(x + 16), code.half[1], dot_bytes(wasm_v128_load(x), code.half[0], (ivec4)(0)));
  }
  ivec4 sum = (ivec4)(0);
  UNROLLED
  for (int at = 0; at < 2; at++) {
    sum += (ivec4)wasm_i32x4_dot_i16x8(low_words(w, code.half[at]), wasm_i16x8_load8x8(x + 16 * at));
    sum += (ivec4)wasm_i32x4_dot_i16x8(high_words(w, code.half[at]), wasm_i16x8_load8x8(x + 16 * at + 8));
  }
  return sum;
}

// One token: y[row] for VECTOR_ROWS rows. `scale` and `bias` have room for their groups.
enum { VECTOR_ROWS = 2 };
INLINE void multiply_vector(Weight w, int first, Activations x, float *y, float *scale, float *bias) {
  const int groups = w.columns / GROUP, rows = min(VECTOR_ROWS, w.rows - first);
  vec4 total[VECTOR_ROWS];
  UNROLLED
  for (int r = 0; r < VECTOR_ROWS; r++) {
    float *const s = scale + r * groups;
    read_groups(w, first + min(r, rows - 1), s, bias);
    vec4 biases = (vec4)(0.0f);
    float rest = 0.0f;
    int g = 0;
    for (; g + 4 <= groups; g += 4) {
      *(vec4 *)(s + g) *= *(const vec4 *)(x.scales + g);
      if (w.has_minimum || w.zero) biases += *(const vec4 *)(bias + g) * *(const vec4 *)(x.sums + g);
    }
    for (; g < groups; g++) {
      s[g] *= x.scales[g];
      if (w.has_minimum || w.zero) rest += bias[g] * x.sums[g];
    }
    total[r] = biases;
    total[r].x += rest;
  }
  for (int g = 0; g < groups; g++) {
    UNROLLED
    for (int r = 0; r < VECTOR_ROWS; r++) {
      const ivec4 products = dot_group(w, bytes_of(w, first + min(r, rows - 1), g), x.codes + g * GROUP);
      total[r] += to_vec4(products) * scale[r * groups + g];
    }
  }
  UNROLLED
  for (int r = 0; r < VECTOR_ROWS; r++) {
    if (r < rows) y[first + r] = sum(total[r]);
  }
}

// A row's codes, decoded once for many tokens: bytes where they can be multiplied, else words.
INLINE void expand_row(Weight w, int row, signed char *codes) {
  for (int g = 0; g < w.columns / GROUP; g++) {
    const Bytes code = bytes_of(w, row, g);
    UNROLLED
    for (int at = 0; at < 2; at++) {
      if (multiplies_bytes(w)) {
        wasm_v128_store(codes + g * GROUP + 16 * at, code.half[at]);
      } else {
        wasm_v128_store(codes + 2 * (g * GROUP + 16 * at), low_words(w, code.half[at]));
        wasm_v128_store(codes + 2 * (g * GROUP + 16 * at + 8), high_words(w, code.half[at]));
      }
    }
  }
}

// Tokens and rows of which one pass computes all pairs.
enum { TILE_TOKENS = 4, TILE_ROWS = 2, MATRIX_ROWS = 4 };
INLINE vec4 at_group(const float *const from[TILE_TOKENS], int g) {
  return (vec4){from[0][g], from[1][g], from[2][g], from[3][g]};
}
INLINE void multiply_tile(
    Weight w, const signed char *const x[TILE_TOKENS], const float *const scales[TILE_TOKENS],
    const float *const group_sums[TILE_TOKENS], const signed char *codes, const float *scale, const float *bias,
    vec4 total[TILE_ROWS]) {
  const int groups = w.columns / GROUP, row_bytes = w.columns * (multiplies_bytes(w) ? 1 : 2);
  for (int g = 0; g < groups; g++) {
    ivec4 sum[TILE_ROWS][TILE_TOKENS] = {};
    if (multiplies_bytes(w)) {
      UNROLLED
      for (int k = g * GROUP; k < (g + 1) * GROUP; k += 16) {
        UNROLLED
        for (int t = 0; t < TILE_TOKENS; t++) {
          UNROLLED
          for (int r = 0; r < TILE_ROWS; r++) {
            sum[r][t] = dot_bytes(wasm_v128_load(x[t] + k), wasm_v128_load(codes + r * row_bytes + k), sum[r][t]);
          }
        }
      }
    } else {
      UNROLLED
      for (int k = g * GROUP; k < (g + 1) * GROUP; k += 8) {
        UNROLLED
        for (int t = 0; t < TILE_TOKENS; t++) {
          UNROLLED
          for (int r = 0; r < TILE_ROWS; r++) {
            const v128_t code = wasm_v128_load(codes + r * row_bytes + 2 * k);
            sum[r][t] += (ivec4)wasm_i32x4_dot_i16x8(wasm_i16x8_load8x8(x[t] + k), code);
          }
        }
      }
    }
    const vec4 token_scale = at_group(scales, g);
    UNROLLED
    for (int r = 0; r < TILE_ROWS; r++) {
      const vec4 product = to_vec4(sums(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
      total[r] += product * (token_scale * scale[r * groups + g]);
      if (w.has_minimum || w.zero) total[r] += at_group(group_sums, g) * bias[r * groups + g];
    }
  }
}

// All tokens: y[token][row] for MATRIX_ROWS rows. `codes` has room for the rows as words.
INLINE void multiply_matrix(
    Weight w, int first, Activations x, float *y, float *scale, float *bias, signed char *codes) {
  const int groups = w.columns / GROUP, row_bytes = w.columns * (multiplies_bytes(w) ? 1 : 2);
  for (int r = 0; r < MATRIX_ROWS; r++) {
    const int row = min(first + r, w.rows - 1);
    read_groups(w, row, scale + r * groups, bias + r * groups);
    expand_row(w, row, codes + r * row_bytes);
  }
  for (int i = 0; i < x.tokens; i += TILE_TOKENS) {
    const signed char *code[TILE_TOKENS];
    const float *scales[TILE_TOKENS], *group_sums[TILE_TOKENS];
    UNROLLED
    for (int t = 0; t < TILE_TOKENS; t++) {
      const int token = min(i + t, x.tokens - 1);
      code[t] = x.codes + token * w.columns;
      scales[t] = x.scales + token * groups;
      group_sums[t] = x.sums + token * groups;
    }
    for (int r = 0; r < MATRIX_ROWS; r += TILE_ROWS) {
      vec4 total[TILE_ROWS] = {};
      multiply_tile(w, code, scales, group_sums, codes + r * row_bytes, scale + r * groups, bias + r * groups, total);
      UNROLLED
      for (int t = 0; t < TILE_TOKENS; t++) {
        UNROLLED
        for (int at = 0; at < TILE_ROWS; at++) {
          const int row = first + r + at;
          if (i + t < x.tokens && row < w.rows) y[(i + t) * w.rows + row] = total[at][t];
        }
      }
    }
  }
}

// 16 small integers as bytes.
INLINE v128_t narrowed(const v128_t part[4]) {
  return wasm_i8x16_narrow_i16x8(
      wasm_i16x8_narrow_i32x4(part[0], part[1]), wasm_i16x8_narrow_i32x4(part[2], part[3]));
}

// Activations of one token to codes of 8 bits, in the order that bytes_of gives a weight's: of two streams, the even ones
// and then the odd ones.
INLINE void quantize_row(const float *x, int columns, int streams, signed char *codes, float *scales, float *sums) {
  for (int g = 0; g < columns / GROUP; g++) {
    const vec4 *from = (const vec4 *)(x + g * GROUP);
    vec4 most = abs(from[0]);
    for (int at = 1; at < GROUP / 4; at++) most = max(most, abs(from[at]));
    const float top = largest(most);
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    v128_t part[GROUP / 4];
    ivec4 added = (ivec4)(0);
    for (int at = 0; at < GROUP / 4; at++) {
      const ivec4 code = to_ivec4(floor(from[at] * inverse + 0.5f));
      added += code;
      part[at] = (v128_t)code;
    }
    v128_t low = narrowed(part), high = narrowed(part + 4);
    if (streams == 2) {
      const v128_t even = wasm_i8x16_shuffle(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
      high = wasm_i8x16_shuffle(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
      low = even;
    }
    wasm_v128_store(codes + g * GROUP, low);
    wasm_v128_store(codes + g * GROUP + 16, high);
    scales[g] = top / 127.0f;
    sums[g] = top / 127.0f * sum(added);
  }
}

// Four elements from four codes of 16 bits.
INLINE vec4 real_halves(Weight w, const unsigned short *at) {
  const uvec4 words = (uvec4)wasm_u32x4_load16x4(at);
  return w.code == F16 ? halves(words) : (vec4)(words << 16);
}

// A row's elements: where they lie already, or computed into `room`. `scale` and `bias` have room for the groups.
INLINE const float *float_row(Weight w, int row, float *room, float *scale, float *bias) {
  if (w.code == F32) return (const float *)w.codes + row * w.columns;
  if (w.code == F16 || w.code == BF16) {
    const unsigned short *from = (const unsigned short *)w.codes + row * w.columns;
    for (int k = 0; k < w.columns; k += 4) *(vec4 *)(room + k) = real_halves(w, from + k);
    return room;
  }
  read_groups(w, row, scale, bias);
  for (int g = 0; g < w.columns / GROUP; g++) {
    Bytes code = bytes_of(w, row, g);
    if (w.bits == 4) code = paired(code);
    const float more = w.has_minimum || w.zero ? bias[g] : 0.0f;
    UNROLLED
    for (int at = 0; at < 2; at++) {
      const v128_t words[2] = {low_words(w, code.half[at]), high_words(w, code.half[at])};
      UNROLLED
      for (int i = 0; i < 2; i++) {
        vec4 *to = (vec4 *)(room + g * GROUP + 16 * at + 8 * i);
        to[0] = to_vec4((ivec4)wasm_i32x4_extend_low_i16x8(words[i])) * scale[g] + more;
        to[1] = to_vec4((ivec4)wasm_i32x4_extend_high_i16x8(words[i])) * scale[g] + more;
      }
    }
  }
  return room;
}

// y[token][row] of float activations, for FLOAT_ROWS rows; `tile` tokens, 1 or 2, are computed at once.
enum { FLOAT_ROWS = 4 };
INLINE void multiply_floats(
    Weight w, int first, const float *x, int tokens, int tile, float *y, float *room, float *scale, float *bias) {
  const float *row[FLOAT_ROWS];
  for (int r = 0; r < FLOAT_ROWS; r++) {
    row[r] = float_row(w, min(first + r, w.rows - 1), room + r * w.columns, scale, bias);
  }
  for (int i = 0; i < tokens; i += tile) {
    vec4 total[2][FLOAT_ROWS] = {};
    const float *const one = x + i * w.columns, *const other = x + min(i + tile, tokens) * w.columns - w.columns;
    for (int k = 0; k < w.columns; k += 4) {
      UNROLLED
      for (int r = 0; r < FLOAT_ROWS; r++) {
        const vec4 element = *(const vec4 *)(row[r] + k);
        total[0][r] += *(const vec4 *)(one + k) * element;
        if (tile == 2) total[1][r] += *(const vec4 *)(other + k) * element;
      }
    }
    UNROLLED
    for (int t = 0; t < 2; t++) {
      const vec4 result = sums(total[t][0], total[t][1], total[t][2], total[t][3]);
      UNROLLED
      for (int r = 0; r < FLOAT_ROWS; r++) {
        if (t < tile && i + t < tokens && first + r < w.rows) y[(i + t) * w.rows + first + r] = result[r];
      }
    }
  }
}
