/** The options of a request, OpenAI's names, checked: every mistake is one sentence that names the option. */
import { WebrelaxError } from "./errors.js";

/**
 * @typedef {import("./sampler.js").Sampling} Sampling
 * @typedef {import("./tokenizer.js").Message} Message
 * @typedef {{temperature?: number, top_p?: number, top_k?: number}} Defaults of the model's generation_config.json
 * @typedef {{
 *   max_tokens?: number | null, max_completion_tokens?: number | null, temperature?: number | null,
 *   top_p?: number | null, top_k?: number | null, seed?: number | null, stop?: string | string[] | null,
 *   stream?: boolean, signal?: AbortSignal | null, ignore_eos?: boolean}} CommonOptions
 * @typedef {CommonOptions & {prompt: string | number[], logprobs?: number | null}} CompletionOptions
 * @typedef {{role: string, content: string | {type: string, text: string}[]}} ChatMessage
 * @typedef {CommonOptions & {messages: ChatMessage[], logprobs?: number | boolean | null,
 *   top_logprobs?: number | null}} ChatOptions
 * @typedef {{maxTokens: number, sampling: Sampling, stops: string[], logprobs: number | null, ignoreEnd: boolean,
 *   signal: AbortSignal | null}} Request
 * @typedef {string | number[] | {messages: Message[]}} Input what is answered: text, token ids or a conversation
 */

const COMMON = [
  "max_tokens",
  "max_completion_tokens",
  "temperature",
  "top_p",
  "top_k",
  "seed",
  "stop",
  "stream",
  "signal",
  "ignore_eos",
  "logprobs",
];
/** OpenAI's options that change nothing here: there is one model and one user. */
const IGNORED = ["model", "user", "stream_options", "store", "metadata"];
/** OpenAI's options that hold their default or are refused. @type {Record<string, unknown>} */
const FIXED = { n: 1, best_of: 1, echo: false, frequency_penalty: 0, presence_penalty: 0 };
const ROLES = ["system", "user", "assistant"];
const MOST_LOGPROBS = 1000;

/**
 * @param {CompletionOptions | ChatOptions} options
 * @param {string[]} own the options of this endpoint beside the common ones
 * @param {Defaults} defaults
 * @returns {Request}
 */
export function readOptions(options, own, defaults) {
  if (typeof options !== "object" || options === null) throw wrong("The request must be an object of options.");
  const given = /** @type {Record<string, any>} */ (options);
  for (const [name, value] of Object.entries(given)) {
    if (value == null || COMMON.includes(name) || own.includes(name) || IGNORED.includes(name)) continue;
    if (name in FIXED && value === FIXED[name]) continue;
    throw wrong(
      name in FIXED
        ? `${name} must be ${FIXED[name]}: other values are not supported.`
        : `The option "${name}" is not supported: supported are ${[...own, ...COMMON].join(", ")}.`,
    );
  }
  const number = (
    /** @type {string} */ name,
    /** @type {number} */ fallback,
    /** @type {[number, number]} */ [low, high],
    whole = false,
  ) => {
    const value = given[name] ?? fallback;
    if (typeof value !== "number" || !(value >= low && value <= high) || (whole && !Number.isInteger(value))) {
      const kind = whole ? "a whole number" : "a number";
      const range =
        high === Number.MAX_SAFE_INTEGER || high === Infinity ? `of at least ${low}` : `from ${low} to ${high}`;
      throw wrong(`${name} must be ${kind} ${range}, but is ${show(value)}.`);
    }
    return value;
  };
  const most = Number.MAX_SAFE_INTEGER;
  const temperature = number("temperature", defaults.temperature ?? 1, [0, 100]);
  const topP = number("top_p", defaults.top_p ?? 1, [0, 1]);
  const topK = number("top_k", defaults.top_k ?? 0, [0, most], true);
  const seed = number("seed", crypto.getRandomValues(new Uint32Array(1))[0], [0, most], true);
  if (topP === 0) throw wrong("top_p must be above 0: use temperature 0 for greedy answers.");
  const maxTokens = Math.min(
    number("max_tokens", most, [1, most], true),
    number("max_completion_tokens", most, [1, most], true),
  );
  const signal = given.signal ?? null;
  if (signal !== null && !(signal instanceof AbortSignal)) throw wrong("signal must be an AbortSignal.");
  for (const name of ["stream", "ignore_eos"]) {
    if (given[name] != null && typeof given[name] !== "boolean")
      throw wrong(`${name} must be true or false, but is ${show(given[name])}.`);
  }
  return {
    maxTokens,
    sampling: { temperature, topK, topP, seed },
    stops: readStops(given.stop),
    logprobs: readLogprobs(given, number),
    ignoreEnd: given.ignore_eos ?? false,
    signal,
  };
}

/** @param {any} stop @returns {string[]} */
function readStops(stop) {
  const stops = stop == null ? [] : [stop].flat();
  // Half a surrogate pair would split a character of the answer.
  if (!stops.every((text) => typeof text === "string" && text !== "" && !/\p{Surrogate}/u.test(text))) {
    throw wrong("stop must be a string or a list of strings, none of them empty or with half a surrogate pair.");
  }
  return stops;
}

/**
 * @param {Record<string, any>} given
 * @param {(name: string, fallback: number, range: [number, number], whole: boolean) => number} number
 * @returns {number | null}
 */
function readLogprobs(given, number) {
  if (given.logprobs == null || given.logprobs === false) return null;
  return number(given.logprobs === true ? "top_logprobs" : "logprobs", 0, [0, MOST_LOGPROBS], true);
}

/**
 * @param {unknown} messages
 * @returns {Message[]} contents as plain strings
 */
export function readMessages(messages) {
  if (!Array.isArray(messages) || messages.length === 0)
    throw wrong("messages must be a list of at least one message.");
  return messages.map((message, index) => {
    const where = `messages[${index}]`;
    if (typeof message !== "object" || message === null)
      throw wrong(`${where} must be an object with role and content.`);
    const { role, content } = message;
    if (!ROLES.includes(role)) throw wrong(`${where}.role must be one of ${ROLES.join(", ")}, but is ${show(role)}.`);
    if (typeof content === "string") return { role, content };
    if (Array.isArray(content) && content.every((part) => part?.type === "text" && typeof part.text === "string")) {
      return { role, content: content.map((part) => part.text).join("") };
    }
    throw wrong(`${where}.content must be a string or a list of text parts: images and audio are not supported.`);
  });
}

/**
 * @param {unknown} prompt text, or token ids
 * @param {number} vocab
 * @returns {string | number[]}
 */
export function readPrompt(prompt, vocab) {
  if (typeof prompt === "string") return prompt;
  const valid = (/** @type {unknown} */ id) => Number.isInteger(id) && Number(id) >= 0 && Number(id) < vocab;
  const ids = Array.isArray(prompt) ? [...prompt] : null; // a copy: the caller may change theirs; without holes
  if (ids?.every(valid)) return ids;
  throw wrong(`prompt must be a string or a list of token ids from 0 to ${vocab - 1}.`);
}

/** @param {string} message */
function wrong(message) {
  return new WebrelaxError("options", message);
}

/** @param {unknown} value */
function show(value) {
  return typeof value === "string" ? `"${value}"` : String(value);
}
