/** A loaded model, in the thread that computes it or tells the GPU to. */
import { ChatCompletions, Completions } from "./completions.js";
import { WebrelaxError } from "./errors.js";
import { generate } from "./generate.js";
import { Model } from "./model.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").TargetName} TargetName
 * @typedef {import("./options.js").Defaults} Defaults
 * @typedef {import("./options.js").Input} Input
 * @typedef {import("./options.js").Request} Request
 * @typedef {import("./tokenizer.js").Tokenizer} Tokenizer
 * @typedef {import("./device.js").DeviceInfo} DeviceInfo
 * @typedef {{target: TargetName, profile: string, threads: number, info: DeviceInfo, failed: Promise<WebrelaxError>,
 *   check(): void, destroy(): void}} Device what a GPU and a CPU have in common; check() throws what has befallen it
 * @typedef {import("./model.js").Runner & Pick<import("./executor.js").Executor, "countDispatches">} Runner
 * @typedef {{executor: Runner, tokenizer: Tokenizer,
 *   generation: (Defaults & {eos_token_id?: number | number[]}) | null}} Parts
 * @typedef {{manifest_s: number, load_s: number, total_s: number, downloaded_bytes: number,
 *   cached_bytes: number}} LoadStats
 * @typedef {{model: string, architecture: string, context: number, target: TargetName, profile: string,
 *   features: string[], threads: number, device: DeviceInfo, memory: Record<string, number>,
 *   dispatches: {decode: number, prefill: number}, sampling: Defaults, load: LoadStats}} EngineInfo `threads` on
 *   the CPU: 0 where a GPU computes
 */

/** Made by createEngine. */
export class Engine {
  #device;
  #model;
  #tokenizer;
  #ends;
  #busy = false;
  #disposed = false;

  /** @param {Device} device @param {Manifest} manifest @param {Parts} parts @param {LoadStats} load */
  constructor(device, manifest, { executor, tokenizer, generation }, load) {
    this.#device = device;
    this.#tokenizer = tokenizer;
    this.#model = new Model(executor, manifest.model);
    this.#ends = tokenizer.ends(generation);
    const { temperature, top_p, top_k } = generation ?? {};
    const sampling = { temperature, top_p, top_k };
    const { context, prefill_chunk, vocab, architecture } = manifest.model;
    /** @type {EngineInfo} */
    this.info = {
      model: manifest.name,
      architecture,
      context,
      target: device.target,
      profile: device.profile,
      features: manifest.profiles[device.profile].features,
      threads: device.threads,
      device: device.info,
      memory: memoryOf(manifest),
      dispatches: {
        decode: executor.countDispatches("decode", { n: 1, m: 0 }),
        prefill: executor.countDispatches("prefill", { n: prefill_chunk, m: 0 }),
      },
      sampling,
      load,
    };
    /** Settles with the error when the device fails, also between requests; the engine is of no use then. */
    this.failed = device.failed;
    const backend = {
      model: manifest.name,
      vocab,
      defaults: sampling,
      generate: (/** @type {Input} */ input, /** @type {Request} */ request) => this.generate(input, request),
    };
    this.completions = new Completions(backend);
    this.chat = { completions: new ChatCompletions(backend) };
  }

  /**
   * The answer as it comes, which both endpoints are made of.
   * @param {Input} input
   * @param {Request} request
   * @returns {AsyncGenerator<import("./generate.js").Piece, import("./generate.js").Outcome, void>}
   */
  async *generate(input, request) {
    this.#ready();
    this.#busy = true;
    try {
      const parts = {
        model: this.#model,
        tokenizer: this.#tokenizer,
        ends: this.#ends,
        check: () => this.#alive(),
      };
      return yield* generate(parts, this.#encode(input), request);
    } catch (error) {
      if (this.#disposed) this.#alive(); // what fails then fails for that reason
      throw error;
    } finally {
      this.#busy = false;
    }
  }

  /** @param {Input} input */
  #encode(input) {
    if (typeof input === "string") return this.#tokenizer.encode(input);
    return "messages" in input ? this.#tokenizer.encodeChat(input.messages) : input;
  }

  #alive() {
    if (this.#disposed) throw disposedError();
    this.#device.check();
  }

  #ready() {
    this.#alive();
    if (this.#busy) throw busyError();
  }

  /** Forgets the conversation in the key-value cache. Answers do not depend on it: only their speed does. */
  reset() {
    this.#ready();
    this.#model.reset();
  }

  /** Frees the device's memory; a running request ends with an error. */
  dispose() {
    this.#disposed = true;
    this.#device.destroy();
  }
}

export function disposedError() {
  return new WebrelaxError("disposed", "This engine was disposed: create another.");
}

export function busyError() {
  return new WebrelaxError("busy", "The engine is still answering: wait for that answer or stop it first.");
}

/** Bytes by kind of buffer, their sum, and the manifest's figures. @param {Manifest} manifest */
function memoryOf(manifest) {
  /** @type {Record<string, number>} */
  const memory = { ...manifest.memory };
  let total = 0;
  for (const { kind } of manifest.buffers) memory[kind] = 0;
  for (const { kind, size } of manifest.buffers) {
    memory[kind] += size;
    total += size;
  }
  return { ...memory, total };
}
