/** The token loop: prefill, then sample and decode until a stop, a bound or an abort. */
import { WebrelaxError, throwIfAborted } from "./errors.js";
import { logSumExp, sample, top } from "./sampler.js";
import { Detokenizer, StopMatcher } from "./text.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./tokenizer.js").Tokenizer} Tokenizer
 * @typedef {import("./options.js").Request} Request
 * @typedef {{id: number, token: string, logprob: number}} Candidate
 * @typedef {Candidate & {top: Candidate[], topLogits: [id: number, logit: number][]}} Logprob
 * @typedef {{id: number | null, text: string, logprob: Logprob | null, prompt?: number[]}} Piece a token and the text
 *   that it completes; without a token: the one that ended the answer, or text that was held back to the end. The first
 *   piece has the prompt's tokens.
 * @typedef {{model: Model, tokenizer: Pick<Tokenizer, "decode" | "show">, ends: ReadonlySet<number>,
 *   check: () => void}} Parts `ends` are the tokens that end an answer; check() throws what has befallen the device
 * @typedef {{promptTokens: number, completionTokens: number, cachedTokens: number, decodeSteps: number,
 *   prefillSeconds: number, firstTokenSeconds: number, decodeSeconds: number}} Counts the token that ends an answer is
 *   not counted
 * @typedef {{reason: "stop" | "length", counts: Counts, prompt: number[]}} Outcome
 */

/**
 * @param {Parts} parts
 * @param {number[]} prompt
 * @param {Request} request
 * @returns {AsyncGenerator<Piece, Outcome, void>} one piece a token, also where its text is still empty
 */
export async function* generate({ model, tokenizer, ends, check }, prompt, request) {
  const { context, vocab } = model.config;
  if (prompt.length === 0) throw new WebrelaxError("options", "The prompt is empty: give at least one token of text.");
  if (prompt.length > context) {
    throw new WebrelaxError(
      "context",
      `The prompt has ${prompt.length} tokens but the model's context holds ${context}: ` +
        "shorten it or begin a new conversation.",
    );
  }
  // A kernel would read beside the embedding for an id that the vocabulary has not.
  for (const id of prompt) {
    if (!Number.isInteger(id) || id < 0 || id >= vocab) {
      throw new WebrelaxError(
        "format",
        `The tokenizer gave the token ${id}, which the model's vocabulary of ${vocab} has not: build the site again.`,
      );
    }
  }
  const { sampling, signal } = request;
  // The last token of an answer needs no place in the cache.
  const bound = Math.min(request.maxTokens, context - prompt.length + 1);
  const detokenizer = new Detokenizer((ids) => tokenizer.decode(ids));
  const stops = new StopMatcher(request.stops);
  const start = performance.now();
  let { logits, computed } = await model.prefill(prompt, signal);
  const prefilled = performance.now();
  let firstToken = 0;
  /** @type {Outcome["reason"]} */
  let reason = "length";
  let made = 0;
  let steps = 0;
  while (made < bound) {
    check();
    throwIfAborted(signal);
    const id = sample(logits, sampling, prompt.length + made);
    const ended = ends.has(id) && !request.ignoreEnd;
    const logprob = request.logprobs === null ? null : describe(logits, id, request.logprobs, tokenizer);
    firstToken ||= performance.now();
    if (ended) {
      reason = "stop";
      yield { id: null, text: "", logprob, ...(made === 0 && { prompt }) };
      break;
    }
    made++;
    yield { id, text: stops.push(detokenizer.push(id)), logprob, ...(made === 1 && { prompt }) };
    if (stops.stopped) break;
    if (made < bound) {
      throwIfAborted(signal);
      logits = await model.decode(id);
      steps++;
    }
  }
  const end = performance.now();
  const rest = stops.push(detokenizer.flush()) + stops.flush();
  if (stops.stopped) reason = "stop";
  if (rest) yield { id: null, text: rest, logprob: null };
  const counts = {
    promptTokens: prompt.length,
    completionTokens: made,
    cachedTokens: prompt.length - computed,
    decodeSteps: steps,
    prefillSeconds: (prefilled - start) / 1000,
    firstTokenSeconds: (firstToken - start) / 1000,
    decodeSeconds: (end - firstToken) / 1000,
  };
  return { reason, counts, prompt };
}

/**
 * @param {Float32Array} logits
 * @param {number} id the chosen token
 * @param {number} k
 * @param {Pick<Tokenizer, "show">} tokenizer
 * @returns {Logprob}
 */
function describe(logits, id, k, tokenizer) {
  const best = top(logits, k);
  return {
    id,
    token: tokenizer.show(id),
    logprob: logits[id] - logSumExp(logits),
    top: best.map((entry) => ({ id: entry.id, token: tokenizer.show(entry.id), logprob: entry.logprob })),
    topLogits: best.map((entry) => [entry.id, entry.logit]),
  };
}
