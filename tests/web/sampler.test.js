import assert from "node:assert/strict";
import test from "node:test";
import { argmax, logSumExp, sample, top, uniform } from "../../web/sampler.js";

const sampling = (options) => ({ temperature: 1, topK: 0, topP: 1, seed: 7, ...options });
const draws = (logits, options, count = 4000) => {
  const counts = new Map();
  for (let position = 0; position < count; position++) {
    const id = sample(logits, sampling(options), position);
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
};

test("greedy takes the first of the largest", () => {
  assert.equal(sample(Float32Array.of(1, 5, 5, 2), sampling({ temperature: 0 }), 0), 1);
});

test("logits that are not finite are an error, never a token", () => {
  assert.throws(() => argmax(Float32Array.of(NaN, NaN)), { code: "kernel" });
  assert.throws(() => argmax(Float32Array.of(0, Infinity)), { code: "kernel" });
});

test("draws follow the softmax", () => {
  const probabilities = [0.5, 0.3, 0.15, 0.05];
  const logits = Float32Array.from(probabilities, Math.log);
  for (const options of [{}, { topK: 4 }, { topP: 0.9999 }]) {
    const counts = draws(logits, options);
    probabilities.forEach((p, id) =>
      assert.ok(Math.abs((counts.get(id) ?? 0) / 4000 - p) < 0.03, `${id} in ${JSON.stringify(options)}`),
    );
  }
});

test("temperature sharpens and flattens", () => {
  const logits = Float32Array.of(2, 1, 0);
  assert.ok(draws(logits, { temperature: 0.2 }).get(0) > 3900);
  assert.ok(draws(logits, { temperature: 10 }).get(2) > 1000);
});

test("top-k and top-p bound the choice", () => {
  const logits = Float32Array.from([0.1, 0.4, 0.2, 0.3], Math.log);
  assert.deepEqual([...draws(logits, { topK: 2 }).keys()].sort(), [1, 3]);
  assert.deepEqual([...draws(logits, { topP: 0.5 }).keys()].sort(), [1, 3]);
  assert.deepEqual([...draws(logits, { topP: 0.39 }).keys()], [1]);
  // Of the three most likely, renormalized to 0.44, 0.33, 0.22, half is reached by two.
  assert.deepEqual([...draws(logits, { topK: 3, topP: 0.5 }).keys()].sort(), [1, 3]);
  assert.deepEqual([...draws(logits, { topK: 1 }).keys()], [1]);
  assert.deepEqual([...draws(logits, { topP: 1e-9 }).keys()], [1]);
});

test("the same seed gives the same draws, whatever was drawn before", () => {
  const logits = Float32Array.from({ length: 500 }, (_, i) => Math.sin(i));
  const first = Array.from({ length: 50 }, (_, position) => sample(logits, sampling({ seed: 3 }), position));
  const again = Array.from({ length: 50 }, (_, i) => sample(logits, sampling({ seed: 3 }), 49 - i)).reverse();
  const other = Array.from({ length: 50 }, (_, position) => sample(logits, sampling({ seed: 4 }), position));
  assert.deepEqual(first, again);
  assert.notDeepEqual(first, other);
});

test("random numbers are even over seeds and positions", () => {
  for (const draw of [(i) => uniform(i, 0), (i) => uniform(0, i), (i) => uniform(2 ** 40 + i, 5)]) {
    const values = Array.from({ length: 10000 }, (_, i) => draw(i));
    const mean = values.reduce((a, b) => a + b) / values.length;
    assert.ok(values.every((value) => value >= 0 && value < 1));
    assert.ok(Math.abs(mean - 0.5) < 0.01, `mean ${mean}`);
    assert.ok(new Set(values).size > 9980);
  }
  assert.notEqual(uniform(1, 0), uniform(1 + 2 ** 32, 0));
});

test("top gives the k largest in order, as a full sort would", () => {
  const logits = Float32Array.from({ length: 1000 }, (_, i) => Math.round(20 * Math.sin(i * i)));
  const sorted = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
  assert.deepEqual(
    top(logits, 1000).map(({ id }) => id),
    sorted,
  );
  const total = logSumExp(logits);
  for (const { id, logit, logprob } of top(logits, 5)) {
    assert.equal(logit, logits[id]);
    assert.ok(Math.abs(logprob - (logits[id] - total)) < 1e-9);
  }
  assert.equal(top(Float32Array.of(1, 2), 10).length, 2);
});
