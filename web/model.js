/** The language model: tokens in, logits out, and the knowledge of which tokens the key-value cache holds. */
import { WebrelaxError, throwIfAborted } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./executor.js").Variables} Variables
 * @typedef {{
 *   run(name: string, variables: Variables, inputs: Record<string, Int32Array>, result?: string | null):
 *     Promise<import("./executor.js").Values | null>,
 *   idle(): Promise<void>}} Runner what the model needs of an executor
 */

export class Model {
  /** @type {number[]} the tokens whose keys and values are in the cache, position by position */
  #cached = [];

  /** @param {Runner} runner @param {Manifest["model"]} config */
  constructor(runner, config) {
    this.runner = runner;
    this.config = config;
  }

  /** Tokens in the cache. */
  get length() {
    return this.#cached.length;
  }

  /** Forgets the conversation. */
  reset() {
    this.#cached = [];
  }

  /**
   * Makes the cache hold `prompt`, keeping the longest prefix that it holds already.
   * @param {number[]} prompt 1 to `context` tokens
   * @param {AbortSignal | null} [signal] looked at between chunks
   * @returns {Promise<{logits: Float32Array<ArrayBuffer>, computed: number}>} logits after the last token, and how many
   *   tokens were not taken from the cache
   */
  async prefill(prompt, signal = null) {
    const { prefill_chunk } = this.config;
    // Slots past the kept prefix are overwritten before they are read. The last token is always computed: its logits
    // are what is asked for.
    const kept = Math.min(commonPrefix(this.#cached, prompt), prompt.length - 1);
    this.#cached.length = kept;
    for (;;) {
      throwIfAborted(signal);
      const start = this.length;
      const chunk = prompt.slice(start, start + prefill_chunk);
      const last = start + chunk.length === prompt.length;
      const logits = await this.#step(chunk, last);
      if (logits) return { logits, computed: prompt.length - kept };
      await this.runner.idle(); // lets the page breathe, and the signal be heard, between chunks
    }
  }

  /** @param {number} token to append @returns {Promise<Float32Array<ArrayBuffer>>} logits after it */
  async decode(token) {
    return /** @type {Float32Array<ArrayBuffer>} */ (await this.#step([token], true));
  }

  /** @param {number[]} tokens @param {boolean} wantLogits */
  async #step(tokens, wantLogits) {
    const n = tokens.length;
    const m = this.length;
    if (m + n > this.config.context) {
      throw new WebrelaxError(
        "context",
        `Position ${m + n} is past the model's context of ${this.config.context} tokens.`,
      );
    }
    const name = n === 1 ? "decode" : "prefill";
    const inputs = {
      tokens: Int32Array.from(tokens),
      positions: Int32Array.from(tokens, (_, i) => m + i),
      sequences: new Int32Array(n),
    };
    // Whatever happens inside run, slots from m on may be half written: they count only once it has returned.
    const logits = await this.runner.run(name, { n, m }, inputs, wantLogits ? "logits" : null);
    this.#cached.push(...tokens);
    return /** @type {Float32Array<ArrayBuffer> | null} */ (logits);
  }
}

/** @param {number[]} a @param {number[]} b */
function commonPrefix(a, b) {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) i++;
  return i;
}
