/** OpenAI's two endpoints over the token loop: whole answers, or chunks as they come. */
import { WebrelaxError } from "./errors.js";
import { readMessages, readOptions, readPrompt } from "./options.js";

/**
 * @typedef {import("./generate.js").Piece} Piece
 * @typedef {import("./generate.js").Outcome} Outcome
 * @typedef {import("./generate.js").Logprob} Logprob
 * @typedef {import("./options.js").Request} Request
 * @typedef {import("./options.js").Input} Input
 * @typedef {import("./options.js").CompletionOptions} CompletionOptions
 * @typedef {import("./options.js").ChatOptions} ChatOptions
 * @typedef {{prompt_tokens: number, completion_tokens: number, total_tokens: number,
 *   prompt_tokens_details: {cached_tokens: number}, extra: {prefill_tokens_per_s: number,
 *   decode_tokens_per_s: number, time_to_first_token_s: number, seed: number}}} Usage
 *   prefill counts computed tokens only; decode counts the steps after it
 * @typedef {{index: 0, text?: string, message?: {role: "assistant", content: string},
 *   delta?: {role?: "assistant", content?: string}, finish_reason: "stop" | "length" | null, logprobs: any,
 *   token_ids: number[], prompt_token_ids?: number[]}} Choice
 * @typedef {{id: string, object: string, created: number, model: string, choices: [Choice], usage?: Usage}} Completion
 * @typedef {{
 *   model: string, vocab: number, defaults: import("./options.js").Defaults,
 *   generate(input: Input, request: Request): AsyncGenerator<Piece, Outcome, void>}} Backend
 */

/** `engine.completions`: raw text in, text out, no template. */
export class Completions {
  /** @param {Backend} backend */
  constructor(backend) {
    this.backend = backend;
  }

  /**
   * @overload
   * @param {CompletionOptions & {stream: true}} options
   * @returns {AsyncIterableIterator<Completion>}
   */
  /**
   * @overload
   * @param {CompletionOptions & {stream?: false}} options
   * @returns {Promise<Completion>}
   */
  /**
   * @param {CompletionOptions} options
   * @returns {Promise<Completion> | AsyncIterableIterator<Completion>} the iterator may be awaited too
   */
  create(options) {
    const { backend } = this;
    const read = () => {
      const request = readOptions(options, ["prompt"], backend.defaults);
      return { request, input: readPrompt(options.prompt, backend.vocab) };
    };
    return answer(backend, TEXT, options?.stream === true, read);
  }
}

/** `engine.chat.completions`: messages in, the assistant's message out. */
export class ChatCompletions {
  /** @param {Backend} backend */
  constructor(backend) {
    this.backend = backend;
  }

  /**
   * @overload
   * @param {ChatOptions & {stream: true}} options
   * @returns {AsyncIterableIterator<Completion>}
   */
  /**
   * @overload
   * @param {ChatOptions & {stream?: false}} options
   * @returns {Promise<Completion>}
   */
  /**
   * @param {ChatOptions} options
   * @returns {Promise<Completion> | AsyncIterableIterator<Completion>} the iterator may be awaited too
   */
  create(options) {
    const { backend } = this;
    const read = () => {
      const request = readOptions(options, ["messages", "top_logprobs"], backend.defaults);
      return { request, input: { messages: readMessages(options.messages) } };
    };
    return answer(backend, CHAT, options?.stream === true, read);
  }
}

/**
 * What differs between the endpoints.
 * @typedef {{prefix: string, object: string, chunkObject: string,
 *   whole(text: string): Partial<Choice>, part(text: string, first: boolean): Partial<Choice>,
 *   logprobs(entries: Logprob[]): any}} Shape
 */

/** Of the first entry: in a whole answer, the raw logits at the last prompt position. @param {Logprob[]} entries */
const topLogits = (entries) => entries[0]?.topLogits ?? [];

/** @type {Shape} */
const TEXT = {
  prefix: "cmpl",
  object: "text_completion",
  chunkObject: "text_completion",
  whole: (text) => ({ text }),
  part: (text) => ({ text }),
  logprobs: (entries) => ({
    tokens: entries.map(({ token }) => token),
    token_logprobs: entries.map(({ logprob }) => logprob),
    top_logprobs: entries.map(({ top }) => Object.fromEntries(top.map(({ token, logprob }) => [token, logprob]))),
    top_logits: topLogits(entries),
  }),
};

/** @type {Shape} */
const CHAT = {
  prefix: "chatcmpl",
  object: "chat.completion",
  chunkObject: "chat.completion.chunk",
  whole: (content) => ({ message: { role: "assistant", content } }),
  part: (content, first) => ({ delta: first ? { role: "assistant", content } : { content } }),
  logprobs: (entries) => ({
    content: entries.map(({ id, token, logprob, top }) => ({ id, token, logprob, top_logprobs: top })),
    top_logits: topLogits(entries),
  }),
};

/**
 * @param {Backend} backend
 * @param {Shape} shape
 * @param {boolean} stream
 * @param {() => {request: Request, input: Input}} read throws what is wrong with the options
 */
function answer(backend, shape, stream, read) {
  return stream ? streamed(backend, shape, read()) : whole(backend, shape, read);
}

/** @param {Backend} backend @param {Shape} shape @param {string} object */
function header(backend, shape, object) {
  const id = `${shape.prefix}-${crypto.randomUUID()}`;
  return { id, object, created: Math.floor(Date.now() / 1000), model: backend.model };
}

/**
 * @param {Backend} backend @param {Shape} shape @param {() => {request: Request, input: Input}} read
 * @returns {Promise<Completion>}
 */
async function whole(backend, shape, read) {
  const { request, input } = read();
  const pieces = backend.generate(input, request);
  /** @type {number[]} */
  const ids = [];
  /** @type {Logprob[]} */
  const logprobs = [];
  let text = "";
  for (;;) {
    const step = await pieces.next();
    if (step.done) {
      /** @type {Choice} */
      const choice = {
        index: 0,
        ...shape.whole(text),
        finish_reason: step.value.reason,
        logprobs: request.logprobs === null ? null : shape.logprobs(logprobs),
        token_ids: ids,
        prompt_token_ids: step.value.prompt,
      };
      return { ...header(backend, shape, shape.object), choices: [choice], usage: usage(step.value, request) };
    }
    text += step.value.text;
    if (step.value.id !== null) ids.push(step.value.id);
    if (step.value.logprob) logprobs.push(step.value.logprob);
  }
}

/**
 * One chunk a token; the last chunk has the finish reason and the usage.
 * @param {Backend} backend @param {Shape} shape @param {{request: Request, input: Input}} given
 * @returns {AsyncIterableIterator<Completion>}
 */
function streamed(backend, shape, { request, input }) {
  const head = header(backend, shape, shape.chunkObject);
  const left = new AbortController();
  const signal = request.signal ? AbortSignal.any([request.signal, left.signal]) : left.signal;
  async function* chunks() {
    const pieces = backend.generate(input, { ...request, signal });
    try {
      for (let first = true; ; first = false) {
        const step = await pieces.next();
        /** @type {Choice} */
        const choice = { index: 0, finish_reason: null, logprobs: null, token_ids: [] };
        if (step.done) {
          Object.assign(choice, shape.part("", first), { finish_reason: step.value.reason });
          yield /** @type {Completion} */ ({ ...head, choices: [choice], usage: usage(step.value, request) });
          return;
        }
        const { id, text, logprob, prompt } = step.value;
        Object.assign(choice, shape.part(text, first), { token_ids: id === null ? [] : [id] });
        if (prompt) choice.prompt_token_ids = prompt;
        if (logprob) choice.logprobs = shape.logprobs([logprob]);
        yield /** @type {Completion} */ ({ ...head, choices: [choice] });
      }
    } finally {
      await pieces.return(/** @type {any} */ (undefined));
    }
  }
  const inner = chunks();
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      try {
        return await inner.next();
      } catch (error) {
        // Who has left the iterator is owed its end, not an error.
        if (left.signal.aborted && error instanceof WebrelaxError && error.code === "aborted") {
          return { done: true, value: undefined };
        }
        throw error;
      }
    },
    // A generator hears return() at its next yield only; the signal reaches a prefill between its chunks.
    async return() {
      left.abort();
      await inner.return(undefined).catch(() => {});
      return { done: true, value: undefined };
    },
  };
}

/** @param {Outcome} outcome @param {Request} request @returns {Usage} */
function usage({ counts }, { sampling }) {
  const { promptTokens, completionTokens, cachedTokens } = counts;
  const rate = (/** @type {number} */ tokens, /** @type {number} */ seconds) => (seconds > 0 ? tokens / seconds : 0);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    extra: {
      prefill_tokens_per_s: rate(promptTokens - cachedTokens, counts.prefillSeconds),
      decode_tokens_per_s: rate(counts.decodeSteps, counts.decodeSeconds),
      time_to_first_token_s: counts.firstTokenSeconds,
      seed: sampling.seed,
    },
  };
}
