/** Tokens to text as they come: never half a UTF-8 character, never a part of a stop string. */

/**
 * Decodes one token at a time. Text is given once it can no longer change: while the decoded end is U+FFFD, bytes of
 * a character are still missing.
 */
export class Detokenizer {
  /** @type {number[]} tokens from the last clean boundary on: enough context for decoders that look back */
  #window = [];
  /** Characters of the window's text that were given already. */
  #given = 0;

  /** @param {(ids: number[]) => string} decode */
  constructor(decode) {
    this.decode = decode;
  }

  /** @param {number} id @returns {string} new text, often empty in the middle of a character */
  push(id) {
    this.#window.push(id);
    const text = this.decode(this.#window);
    // An unfinished character is at most three bytes, which decoders show as one to three replacement characters.
    const held = /\uFFFD{1,3}$/.exec(text)?.[0].length ?? 0;
    const fresh = text.slice(this.#given, text.length - held);
    this.#given = Math.max(this.#given, text.length - held);
    if (held === 0 && fresh) {
      // The last token stays as context: some decoders drop the space before a first word.
      this.#window = [id];
      this.#given = this.decode(this.#window).length;
    }
    return fresh;
  }

  /** @returns {string} what was held back */
  flush() {
    if (this.#window.length === 0) return "";
    const rest = this.decode(this.#window).slice(this.#given);
    this.#window = [];
    this.#given = 0;
    return rest;
  }
}

/** Cuts a text at the first of its stop strings, holding back what may become one. */
export class StopMatcher {
  #held = "";
  stopped = false;

  /** @param {string[]} stops not empty strings */
  constructor(stops) {
    this.stops = stops;
  }

  /** @param {string} text @returns {string} the text that is safe to show */
  push(text) {
    if (this.stopped) return "";
    const all = this.#held + text;
    const found = this.stops.map((stop) => all.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.stopped = true;
      this.#held = "";
      return all.slice(0, Math.min(...found));
    }
    const hold = Math.max(0, ...this.stops.map((stop) => overlap(all, stop)));
    this.#held = all.slice(all.length - hold);
    return all.slice(0, all.length - hold);
  }

  /** @returns {string} what was held back and did not become a stop string */
  flush() {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }
}

/** The longest end of `text` that is a beginning of `stop`. @param {string} text @param {string} stop */
function overlap(text, stop) {
  let length = Math.min(text.length, stop.length - 1);
  while (length > 0 && !text.endsWith(stop.slice(0, length))) length--;
  return length;
}
