/** Choosing the next token: greedy, or drawn under temperature, top-k and top-p; the same for the same seed. */
import { WebrelaxError } from "./errors.js";

/**
 * @typedef {{temperature: number, topK: number, topP: number, seed: number}} Sampling
 *   temperature 0 is greedy; topK 0 and topP 1 are off; seed is a safe integer >= 0
 */

/**
 * @param {Float32Array} logits
 * @param {Sampling} sampling
 * @param {number} position of the token to be chosen: with the seed, the key of its random number
 * @returns {number} the token's id
 */
export function sample(logits, sampling, position) {
  const best = argmax(logits);
  if (sampling.temperature === 0) return best;
  const { temperature, topK, topP, seed } = sampling;
  const weight = (/** @type {number} */ id) => Math.exp((logits[id] - logits[best]) / temperature);
  const u = uniform(seed, position);
  if (topK === 0 && topP === 1) return drawFromAll(logits.length, weight, u, best);

  const limit = topK === 0 ? logits.length : Math.min(topK, logits.length);
  const ranking = new Ranking(logits);
  /** @type {number[]} */
  const ids = [];
  /** @type {number[]} */
  const weights = [];
  let mass = 0;
  const take = () => {
    const id = ranking.pop();
    ids.push(id);
    weights.push(weight(id));
    mass += weights[weights.length - 1];
  };
  if (topK === 0) {
    let total = 0;
    for (let id = 0; id < logits.length; id++) total += weight(id);
    while (ids.length < limit && mass < topP * total) take();
  } else {
    while (ids.length < limit) take();
    const bound = topP * mass;
    let kept = 0;
    for (mass = 0; kept < ids.length && mass < bound; kept++) mass += weights[kept];
    ids.length = kept;
  }
  if (ids.length === 0) return best;
  let rest = u * mass;
  for (let i = 0; i < ids.length; i++) {
    rest -= weights[i];
    if (rest < 0) return ids[i];
  }
  return ids[ids.length - 1];
}

/**
 * @param {number} count
 * @param {(id: number) => number} weight
 * @param {number} u
 * @param {number} best the answer should rounding leave none
 */
function drawFromAll(count, weight, u, best) {
  let total = 0;
  for (let id = 0; id < count; id++) total += weight(id);
  let rest = u * total;
  for (let id = 0; id < count; id++) {
    rest -= weight(id);
    if (rest < 0) return id;
  }
  return best;
}

/**
 * @param {Float32Array} logits
 * @returns {number} the first id with the largest logit
 */
export function argmax(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
  if (!Number.isFinite(logits[best])) {
    throw new WebrelaxError(
      "kernel",
      "The model computed numbers that are not finite on this GPU: please report this.",
    );
  }
  return best;
}

/**
 * The k largest, with their logits and natural-log probabilities at temperature 1.
 * @param {Float32Array} logits
 * @param {number} k
 * @returns {{id: number, logit: number, logprob: number}[]} best first
 */
export function top(logits, k) {
  const logTotal = logSumExp(logits);
  const ranking = new Ranking(logits);
  return Array.from({ length: Math.min(k, logits.length) }, () => {
    const id = ranking.pop();
    return { id, logit: logits[id], logprob: logits[id] - logTotal };
  });
}

/** @param {Float32Array} logits */
export function logSumExp(logits) {
  const peak = logits[argmax(logits)];
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - peak);
  return peak + Math.log(total);
}

/** Ids from the largest logit down, the smaller first among equals: a heap, so that only what is popped is sorted. */
class Ranking {
  /** @param {Float32Array} logits */
  constructor(logits) {
    this.logits = logits;
    this.heap = Uint32Array.from(logits, (_, id) => id);
    this.size = logits.length;
    for (let i = (this.size >> 1) - 1; i >= 0; i--) this.#sink(i);
  }

  pop() {
    const { heap } = this;
    const id = heap[0];
    heap[0] = heap[--this.size];
    this.#sink(0);
    return id;
  }

  /** @param {number} a @param {number} b whether id a comes before id b */
  #before(a, b) {
    const difference = this.logits[a] - this.logits[b];
    return difference > 0 || (difference === 0 && a < b);
  }

  /** @param {number} i */
  #sink(i) {
    const { heap, size } = this;
    const id = heap[i];
    for (let child; (child = 2 * i + 1) < size; i = child) {
      if (child + 1 < size && this.#before(heap[child + 1], heap[child])) child++;
      if (!this.#before(heap[child], id)) break;
      heap[i] = heap[child];
    }
    heap[i] = id;
  }
}

/**
 * A random number of a counter, not of a state: the same for the same key, whatever was drawn before.
 * @param {number} seed a safe integer >= 0
 * @param {number} position
 * @returns {number} in [0, 1), a multiple of 2^-24 (exact in f32 too)
 */
export function uniform(seed, position) {
  const high = Math.floor(seed / 2 ** 32);
  return (mix(mix(mix(seed >>> 0) ^ high) ^ position) >>> 8) / 2 ** 24;
}

/** The 32-bit finalizer "lowbias32" of hash-prospector, after a step off its fixed point 0. @param {number} x */
function mix(x) {
  x = (x + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}
