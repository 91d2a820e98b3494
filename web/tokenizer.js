/** The model's tokenizer and chat template, by the vendored libraries, with text kept apart from control tokens. */
import { WebrelaxError, messageOf } from "./errors.js";
import { Template } from "./vendor/jinja.js";
import { Tokenizer as Library } from "./vendor/tokenizers.js";

/**
 * @typedef {{role: string, content: string}} Message
 * @typedef {{chat_template?: string | {name: string, template: string}[], bos_token?: TokenText, eos_token?: TokenText,
 *   [key: string]: unknown}} TokenizerConfig
 * @typedef {string | {content: string} | null} TokenText
 */

/**
 * A Unicode noncharacter, reserved for use inside a program. It breaks up what looks like a control token in a
 * message, so that the library sees none there, and is taken out again before the text becomes tokens.
 */
const BREAK = "\uFDD0";

export class Tokenizer {
  /** @param {any} json tokenizer.json @param {TokenizerConfig} config tokenizer_config.json */
  constructor(json, config) {
    try {
      this.library = new Library(json, config);
    } catch (error) {
      throw new WebrelaxError("format", `tokenizer.json cannot be used: ${messageOf(error)}`, { cause: error });
    }
    this.config = config;
    const special = [...this.library.get_added_tokens_decoder().values()].filter((token) => token.special);
    this.special = new Set(special.map((token) => token.id));
    const texts = special.map((token) => token.content.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    this.controls = texts.length > 0 ? new RegExp(`(?=${texts.join("|")})[^]`, "g") : null;
    this.#dropBreaks();
    this.template = this.#template();
  }

  /** The step after control tokens are split off and before text becomes tokens is the pre-tokenizer. */
  #dropBreaks() {
    const { library } = this;
    const inner = library.pre_tokenizer;
    /** @type {(text: string, options?: any) => string[]} */
    const outer = (text, options) => {
      const clean = text.replaceAll(BREAK, "");
      return inner ? /** @type {any} */ (inner)(clean, options) : [clean];
    };
    library.pre_tokenizer = /** @type {any} */ (outer);
  }

  #template() {
    const { chat_template } = this.config;
    const source = Array.isArray(chat_template)
      ? chat_template.find(({ name }) => name === "default")?.template
      : chat_template;
    if (!source) return null;
    try {
      return new Template(source);
    } catch (error) {
      throw new WebrelaxError("format", `The model's chat template cannot be read: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  /**
   * A raw prompt: control tokens in it are control tokens, and the model's own beginning is added.
   * @param {string} text
   * @returns {number[]}
   */
  encode(text) {
    return text === "" ? [] : this.library.encode(text).ids;
  }

  /**
   * A conversation by the model's chat template, ready for the assistant's answer. What looks like a control token
   * inside a message is text.
   * @param {Message[]} messages
   * @returns {number[]}
   */
  encodeChat(messages) {
    if (!this.template) {
      throw new WebrelaxError(
        "format",
        "This model has no chat template: use engine.completions with a raw prompt, " +
          "or build the site from an instruction-tuned model.",
      );
    }
    let text;
    try {
      text = this.template.render({
        messages: messages.map(({ role, content }) => ({ role, content: this.#disarm(content) })),
        add_generation_prompt: true,
        bos_token: textOf(this.config.bos_token),
        eos_token: textOf(this.config.eos_token),
      });
    } catch (error) {
      throw new WebrelaxError("options", `The model's chat template refused the messages: ${messageOf(error)}`, {
        cause: error,
      });
    }
    return this.library.encode(text, { add_special_tokens: false }).ids;
  }

  /** @param {string} content */
  #disarm(content) {
    const clean = content.replaceAll(BREAK, "");
    return this.controls ? clean.replace(this.controls, `$&${BREAK}`) : clean;
  }

  /** @param {number[]} ids @returns {string} their text; control tokens have none */
  decode(ids) {
    const text = ids.filter((id) => !this.special.has(id));
    // The clean-up that the library does by default changes what the model said.
    return text.length === 0 ? "" : this.library.decode(text, { clean_up_tokenization_spaces: false });
  }

  /** @param {number} id @returns {string} the token by itself, control tokens by name */
  show(id) {
    return this.special.has(id) ? (this.library.id_to_token(id) ?? "") : this.decode([id]);
  }

  /**
   * The tokens that end an answer.
   * @param {{eos_token_id?: number | number[]} | null} generation generation_config.json
   * @returns {Set<number>}
   */
  ends(generation) {
    const ids = new Set([generation?.eos_token_id ?? []].flat());
    const own = this.library.token_to_id(textOf(this.config.eos_token));
    if (own !== undefined) ids.add(own);
    return ids;
  }
}

/** @param {TokenText | undefined} token */
function textOf(token) {
  return typeof token === "string" ? token : (token?.content ?? "");
}
