// Attention of a few queries that share a key head, over keys in blocks, with running maxima and sums (arXiv 1805.02867).

// Keys of a block, and the most queries that are computed at once.
enum { KEYS = 64, QUERIES = 2 };

typedef struct {
  int heads, kv_heads, size, capacity;  // of the caches: [sequences, capacity, kv_heads, size]
  int length;                           // keys that there are
  int window;                           // 0: all keys up to the query's own
  int queries;                          // that are computed at once: 1, or 2 where there are more
  float scale, softcap, masked, tiny;   // softcap 0: none
} Attention;

// Scores of 4 keys from `key` on; those that the query at `position` does not see are masked.
INLINE vec4 score(Attention a, vec4 dots, int key, int position) {
  vec4 result = dots * a.scale;
  if (a.softcap != 0.0f) result = tanh(result / a.softcap) * a.softcap;
  const ivec4 at = (ivec4){key, key + 1, key + 2, key + 3};
  ivec4 seen = at <= position;
  if (a.window) seen &= at > position - a.window;
  return select((vec4)(a.masked), result, seen);
}

// Dot products of the queries with 4 keys.
INLINE void dots_of(Attention a, const float *const query[QUERIES], const float *const key[4], vec4 dots[QUERIES]) {
  vec4 sum[QUERIES][4] = {};
  for (int d = 0; d < a.size; d += 4) {
    UNROLLED
    for (int k = 0; k < 4; k++) {
      UNROLLED
      for (int m = 0; m < a.queries; m++) sum[m][k] += *(const vec4 *)(query[m] + d) * *(const vec4 *)(key[k] + d);
    }
  }
  UNROLLED
  for (int m = 0; m < a.queries; m++) dots[m] = sums(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);
}

// mixed[m] += weights[m] times the values of `count` keys, in slices of `vectors` vectors.
INLINE void mix(
    Attention a, int vectors, const float *values, int stride, int count, const float (*weights)[KEYS], float *mixed) {
  for (int d = 0; d < a.size; d += 4 * vectors) {
    vec4 sum[QUERIES][4];
    UNROLLED
    for (int m = 0; m < a.queries; m++) {
      UNROLLED
      for (int v = 0; v < vectors; v++) sum[m][v] = *(const vec4 *)(mixed + m * a.size + d + 4 * v);
    }
    for (int key = 0; key < count; key++) {
      UNROLLED
      for (int v = 0; v < vectors; v++) {
        const vec4 value = *(const vec4 *)(values + key * stride + d + 4 * v);
        UNROLLED
        for (int m = 0; m < a.queries; m++) sum[m][v] += value * weights[m][key];
      }
    }
    UNROLLED
    for (int m = 0; m < a.queries; m++) {
      UNROLLED
      for (int v = 0; v < vectors; v++) *(vec4 *)(mixed + m * a.size + d + 4 * v) = sum[m][v];
    }
  }
}

// Scores of a block become weights; returns what earlier sums and values have to be multiplied by.
INLINE float weigh(Attention a, float *scores, int count, float *top, float *total) {
  vec4 most = (vec4)(*top);
  for (int key = 0; key < count; key += 4) most = max(most, *(const vec4 *)(scores + key));
  const float before = *top, now = largest(most);
  vec4 added = (vec4)(0.0f);
  for (int key = 0; key < count; key += 4) {
    const vec4 s = *(const vec4 *)(scores + key);
    const vec4 weight = select(exp(s - now), (vec4)(0.0f), s < 0.5f * a.masked);
    *(vec4 *)(scores + key) = weight;
    added += weight;
  }
  const float kept = before < 0.5f * a.masked ? 0.0f : exp(before - now);
  *top = now;
  *total = *total * kept + sum(added);
  return kept;
}

// `count` queries, a multiple of those computed at once, at these positions of one sequence; `mixed` has room for [count, size].
INLINE void attend(
    Attention a, const float *const *query, const int *position, int count, const float *keys, const float *values,
    float *const *out, float *mixed) {
  const int stride = a.kv_heads * a.size;
  int first = position[0], last = position[0];
  for (int m = 1; m < count; m++) {
    first = min(first, position[m]);
    last = max(last, position[m]);
  }
  first = a.window && first >= a.window ? (first - a.window + 1) : 0;
  last = min(last, a.length - 1);
  float top[count], total[count];
  for (int m = 0; m < count; m++) top[m] = a.masked, total[m] = 0.0f;
  for (int at = 0; at < count * a.size; at++) mixed[at] = 0.0f;
  for (int start = first; start <= last; start += KEYS) {
    const int keys_here = min(KEYS, last + 1 - start);
    for (int m = 0; m < count; m += a.queries) {
      float weights[QUERIES][KEYS];
      for (int k = 0; k < keys_here; k += 4) {
        const float *key[4];
        UNROLLED
        for (int i = 0; i < 4; i++) key[i] = keys + min(start + k + i, last) * stride;
        vec4 dots[QUERIES];
        dots_of(a, query + m, key, dots);
        UNROLLED
        for (int i = 0; i < a.queries; i++) {
          const vec4 scores = score(a, dots[i], start + k, position[m + i]);
          const ivec4 inside = (ivec4){k, k + 1, k + 2, k + 3} < keys_here;
          *(vec4 *)(weights[i] + k) = select((vec4)(a.masked), scores, inside);
        }
      }
      UNROLLED
      for (int i = 0; i < a.queries; i++) {
        const float kept = weigh(a, weights[i], keys_here, top + m + i, total + m + i);
        for (int d = 0; d < a.size; d += 4) *(vec4 *)(mixed + (m + i) * a.size + d) *= kept;
      }
      const float *const block = values + start * stride;
      mix(a, a.size % 16 ? 1 : 4, block, stride, keys_here, weights, mixed + m * a.size);
    }
  }
  for (int m = 0; m < count; m++) {
    const float factor = 1.0f / max(total[m], a.tiny);
    for (int d = 0; d < a.size; d += 4) *(vec4 *)(out[m] + d) = *(const vec4 *)(mixed + m * a.size + d) * factor;
  }
}

// The queries of a tile of tokens and of all `heads` heads from `head` on, which share a key head. A run of tokens of
// one sequence goes together; an odd number of queries is filled up with the last one again.
INLINE void attend_tile(
    Attention a, int token, int tokens, int head, int heads, const float *queries, const float *keys,
    const float *values, const int *positions, const int *sequences, float *out, float *mixed) {
  const int kv_head = head / (a.heads / a.kv_heads);
  for (int i = token; i < token + tokens;) {
    int run = 1;
    while (i + run < token + tokens && sequences[i + run] == sequences[i]) run++;
    const int count = run * heads, filled = (count + a.queries - 1) / a.queries * a.queries;
    const float *query[filled];
    float *to[filled];
    int position[filled];
    for (int m = 0; m < filled; m++) {
      const int at = min(m, count - 1), place = ((i + at / heads) * a.heads + head + at % heads) * a.size;
      query[m] = queries + place;
      to[m] = out + place;
      position[m] = positions[i + at / heads];
    }
    const int cache = (sequences[i] * a.capacity * a.kv_heads + kv_head) * a.size;
    attend(a, query, position, filled, keys + cache, values + cache, to, mixed);
    i += run;
  }
}
