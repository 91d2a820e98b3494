/**
 * The public entry of the run time.
 *
 *     import { createEngine } from "./runtime.js";
 *     const engine = await createEngine({ model: "models/NAME/", onProgress, signal });
 *     const answer = await engine.chat.completions.create({ messages: [{ role: "user", content: "Hi" }] });
 *     for await (const chunk of engine.completions.create({ prompt: "The capital of", stream: true })) ...
 *     engine.dispose();
 *
 * An engine answers one request at a time: a second one meanwhile throws a WebrelaxError with code "busy". Leaving the
 * iterator, its return(), or the request's signal stops within one token; the engine is then ready for the next.
 */
import { ChatCompletions, Completions } from "./completions.js";
import { openDevice } from "./device.js";
import { WebrelaxError, abortedError, formatBytes, messageOf, throwIfAborted } from "./errors.js";
import { Executor } from "./executor.js";
import { generate } from "./generate.js";
import { Loader } from "./loader.js";
import { filesOf } from "./manifest.js";
import { Model } from "./model.js";
import { Pipelines } from "./pipelines.js";
import { Tokenizer } from "./tokenizer.js";
import { loadVM } from "./vm.js";
import { createBuffers, uploadWeights } from "./weights.js";

export { WebrelaxError } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./device.js").Device} Device
 * @typedef {import("./options.js").Defaults} Defaults
 * @typedef {"manifest" | "device" | "download" | "compile" | "ready"} Phase
 * @typedef {{phase: Phase, text: string, loaded: number, total: number, cached: number, compiled: number,
 *   kernels: number}} Progress bytes loaded (of which from the cache) of the total; kernels compiled of all. Download
 *   and compilation go on at the same time: the phase is "download" until every byte is there.
 * @typedef {{model: string, onProgress?: (progress: Progress) => void, signal?: AbortSignal | null,
 *   profile?: string | null}} EngineOptions `model` is the bundle's folder; `profile` overrides the choice by features
 * @typedef {{manifest_s: number, load_s: number, total_s: number, downloaded_bytes: number,
 *   cached_bytes: number}} LoadStats
 * @typedef {{model: string, architecture: string, context: number, profile: string, features: string[],
 *   device: import("./device.js").DeviceInfo, memory: Record<string, number>,
 *   dispatches: {decode: number, prefill: number}, sampling: Defaults, load: LoadStats}} EngineInfo
 */

/**
 * Loads a model: downloads what the browser has not stored, checks every file, compiles the kernels.
 * @param {EngineOptions} options
 * @returns {Promise<Engine>}
 */
export async function createEngine({ model, onProgress = () => {}, signal = null, profile = null }) {
  const start = performance.now();
  const folder = new URL(model.endsWith("/") ? model : `${model}/`, globalThis.document?.baseURI ?? import.meta.url);
  // One part failing stops the others.
  const failed = new AbortController();
  const stop = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const loader = new Loader(folder, { signal: stop });
  const progress = new ProgressReport(onProgress, stop);
  /** @type {Device | null} */
  let device = null;
  try {
    throwIfAborted(signal);
    progress.phase("manifest");
    const manifest = await loader.manifest();
    const manifestSeconds = (performance.now() - start) / 1000;
    progress.phase("device");
    const opened = (device = await openDevice(manifest, { profile }));
    const loading = loadParts(opened, manifest, loader, progress, stop);
    loading.catch(() => {}); // a failed device wins the race below
    const parts = await Promise.race([loading, opened.failed.then((error) => Promise.reject(error)), aborted(stop)]);
    throwIfAborted(signal);
    progress.phase("ready");
    const seconds = (performance.now() - start) / 1000;
    return new Engine(opened, manifest, parts, {
      manifest_s: manifestSeconds,
      load_s: seconds - manifestSeconds,
      total_s: seconds,
      downloaded_bytes: progress.state.loaded - progress.state.cached,
      cached_bytes: progress.state.cached,
    });
  } catch (error) {
    failed.abort();
    device?.destroy();
    throwIfAborted(signal); // whatever it was that noticed
    throw error;
  }
}

/** @param {AbortSignal} signal @returns {Promise<never>} rejects once the signal fires, whatever is being waited for */
function aborted(signal) {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(abortedError()), { once: true }));
}

/**
 * @typedef {{executor: Executor, tokenizer: Tokenizer,
 *   generation: (Defaults & {eos_token_id?: number | number[]}) | null}} Parts
 */

/**
 * @param {Device} device
 * @param {Manifest} manifest
 * @param {Loader} loader
 * @param {ProgressReport} progress
 * @param {AbortSignal} signal
 * @returns {Promise<Parts>}
 */
async function loadParts(device, manifest, loader, progress, signal) {
  const profile = manifest.profiles[device.profile];
  const { small, shards } = filesOf(manifest, device.profile);
  progress.expect([...small, ...shards].reduce((sum, name) => sum + (manifest.files[name]?.size ?? 0), 0));
  loader.onBytes = (bytes, cached) => progress.bytes(bytes, cached);
  const buffers = await createBuffers(device, manifest);
  const has = (/** @type {string} */ name) => name in manifest.files;

  const compile = async () => {
    const { kernels } = await loader.json(profile.kernels);
    return Pipelines.compile(device, kernels, {
      usedBytes: manifest.table.used_bytes,
      signal,
      onCompiled: (done, total) => progress.compiled(done, total),
    });
  };
  const readVM = async () => {
    const [wasm, module] = await Promise.all([fetchVM(signal), loader.file(profile.module)]);
    return loadVM(wasm, module).catch((error) => {
      throw new WebrelaxError("format", `${profile.module} cannot be used: ${messageOf(error)}`, { cause: error });
    });
  };
  const readTokenizer = async () => {
    const config = has("tokenizer_config.json") ? await loader.json("tokenizer_config.json") : {};
    return new Tokenizer(await loader.json("tokenizer.json"), config);
  };
  const [pipelines, vm, tokenizer, generation] = await Promise.all([
    compile(),
    readVM(),
    readTokenizer(),
    has("generation_config.json") ? loader.json("generation_config.json") : null,
    uploadWeights(device, manifest, buffers, loader),
  ]);
  return { executor: new Executor(device, manifest, vm, buffers, pipelines), tokenizer, generation };
}

/** The VM lies beside this module: it is the same for every model. @param {AbortSignal} signal */
async function fetchVM(signal) {
  const url = new URL("./vm.wasm", import.meta.url);
  try {
    const response = await fetch(url, { signal });
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch {
    throwIfAborted(signal);
  }
  throw new WebrelaxError(
    "missing-file",
    `${url.pathname} could not be fetched: check that the whole site was uploaded.`,
  );
}

/** A loaded model, ready to answer. Made by createEngine. */
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
      profile: device.profile,
      features: manifest.profiles[device.profile].features,
      device: device.info,
      memory: memoryOf(manifest),
      dispatches: {
        decode: executor.countDispatches("decode", { n: 1, m: 0 }),
        prefill: executor.countDispatches("prefill", { n: prefill_chunk, m: 0 }),
      },
      sampling,
      load,
    };
    /** Settles with the error when the GPU fails, also between requests; the engine is of no use then. */
    this.failed = device.failed;
    const backend = {
      model: manifest.name,
      vocab,
      defaults: sampling,
      encode: (/** @type {string} */ text) => tokenizer.encode(text),
      encodeChat: (/** @type {import("./tokenizer.js").Message[]} */ messages) => tokenizer.encodeChat(messages),
      generate: (/** @type {number[]} */ prompt, /** @type {import("./options.js").Request} */ request) =>
        this.#generate(prompt, request),
    };
    this.completions = new Completions(backend);
    this.chat = { completions: new ChatCompletions(backend) };
  }

  /**
   * @param {number[]} prompt
   * @param {import("./options.js").Request} request
   * @returns {AsyncGenerator<import("./generate.js").Piece, import("./generate.js").Outcome, void>}
   */
  async *#generate(prompt, request) {
    this.#ready();
    this.#busy = true;
    try {
      const parts = {
        model: this.#model,
        tokenizer: this.#tokenizer,
        ends: this.#ends,
        check: () => this.#alive(),
      };
      return yield* generate(parts, prompt, request);
    } catch (error) {
      if (this.#disposed) this.#alive(); // what fails then fails for that reason
      throw error;
    } finally {
      this.#busy = false;
    }
  }

  #alive() {
    if (this.#disposed) throw new WebrelaxError("disposed", "This engine was disposed: create another.");
    this.#device.check();
  }

  #ready() {
    this.#alive();
    if (this.#busy) {
      throw new WebrelaxError("busy", "The engine is still answering: wait for that answer or stop it first.");
    }
  }

  /** Forgets the conversation in the key-value cache. Answers do not depend on it: only their speed does. */
  reset() {
    this.#ready();
    this.#model.reset();
  }

  /** Frees the GPU's memory; a running request ends with an error. */
  dispose() {
    this.#disposed = true;
    this.#device.destroy();
  }
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

class ProgressReport {
  /** @param {(progress: Progress) => void} listener @param {AbortSignal} stop ends the reports */
  constructor(listener, stop) {
    this.listener = listener;
    this.stop = stop;
    /** @type {Progress} */
    this.state = { phase: "manifest", text: "", loaded: 0, total: 0, cached: 0, compiled: 0, kernels: 0 };
  }

  /** @param {Phase} phase */
  phase(phase) {
    const { loaded, total, cached, compiled, kernels } = this.state;
    const source = cached === loaded && cached > 0 ? "Reading stored files" : "Downloading";
    const texts = {
      manifest: "Looking up the model",
      device: "Opening the GPU",
      download: `${source}: ${formatBytes(loaded)} of ${formatBytes(total)}`,
      compile: `Compiling kernels: ${compiled} of ${kernels}`,
      ready: "Ready",
    };
    this.state = { ...this.state, phase, text: texts[phase] };
    if (!this.stop.aborted) this.listener(this.state);
  }

  /** @param {number} total */
  expect(total) {
    this.state.total = total;
    this.phase("download");
  }

  /** @param {number} bytes @param {boolean} cached */
  bytes(bytes, cached) {
    this.state.loaded += bytes;
    if (cached) this.state.cached += bytes;
    this.#advance();
  }

  /** @param {number} done @param {number} total */
  compiled(done, total) {
    this.state.compiled = done;
    this.state.kernels = total;
    this.#advance();
  }

  #advance() {
    this.phase(this.state.loaded < this.state.total ? "download" : "compile");
  }
}
