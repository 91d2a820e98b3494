/** Loads a model for one target: whatever is not stored is downloaded, every file is checked, the kernels compiled. */
import { Engine } from "./engine.js";
import { WebrelaxError, abortedError, messageOf, throwIfAborted } from "./errors.js";
import { Executor } from "./executor.js";
import { filesOf } from "./manifest.js";
import { Tokenizer } from "./tokenizer.js";
import { loadVM } from "./vm.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./loader.js").Loader} Loader
 * @typedef {import("./progress.js").ProgressReport} ProgressReport
 * @typedef {import("./engine.js").Device} Device
 * @typedef {import("./engine.js").Parts} Parts
 */

/**
 * How a target is made ready.
 * @template {Device} D
 * @typedef {object} Driver
 * @property {(manifest: Manifest) => Promise<D>} open
 * @property {(device: D, manifest: Manifest, loader: Loader, options: {signal: AbortSignal,
 *   onCompiled: (done: number, total: number) => void}) => Promise<import("./executor.js").Backend>} prepare compiles
 *   the kernels and places the weights
 */

/**
 * @template {Device} D
 * @param {Driver<D>} driver
 * @param {Manifest} manifest
 * @param {Loader} loader
 * @param {ProgressReport} progress
 * @param {AbortSignal} stop ends the load with an error, whatever it is waiting for
 * @param {number} start when it all began, on this thread's clock, in milliseconds
 * @returns {Promise<Engine>}
 */
export async function loadEngine(driver, manifest, loader, progress, stop, start) {
  const begun = performance.now();
  /** @type {D | null} */
  let device = null;
  try {
    progress.phase("device");
    const opened = (device = await driver.open(manifest));
    const loading = loadParts(driver, opened, manifest, loader, progress, stop);
    loading.catch(() => {}); // a failed device wins the race below
    const parts = await Promise.race([loading, opened.failed.then((error) => Promise.reject(error)), aborted(stop)]);
    throwIfAborted(stop);
    progress.phase("ready");
    const end = performance.now();
    return new Engine(opened, manifest, parts, {
      manifest_s: (begun - start) / 1000,
      load_s: (end - begun) / 1000,
      total_s: (end - start) / 1000,
      downloaded_bytes: progress.state.loaded - progress.state.cached,
      cached_bytes: progress.state.cached,
    });
  } catch (error) {
    device?.destroy();
    throw error;
  }
}

/** @param {AbortSignal} signal @returns {Promise<never>} rejects once the signal fires, whatever is being waited for */
export function aborted(signal) {
  return new Promise((_, reject) => {
    const stop = () => reject(abortedError());
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
  });
}

/**
 * @template {Device} D
 * @param {Driver<D>} driver
 * @param {D} device
 * @param {Manifest} manifest
 * @param {Loader} loader
 * @param {ProgressReport} progress
 * @param {AbortSignal} signal
 * @returns {Promise<Parts>}
 */
async function loadParts(driver, device, manifest, loader, progress, signal) {
  const { module: program } = manifest.profiles[device.profile];
  const { small, shards } = filesOf(manifest, device.profile);
  progress.expect([...small, ...shards].reduce((sum, name) => sum + (manifest.files[name]?.size ?? 0), 0));
  loader.onBytes = (bytes, cached) => progress.bytes(bytes, cached);
  const has = (/** @type {string} */ name) => name in manifest.files;

  const readVM = async () => {
    const [wasm, module] = await Promise.all([fetchVM(loader, signal), loader.file(program)]);
    return loadVM(wasm, module).catch((error) => {
      throw new WebrelaxError("format", `${program} cannot be used: ${messageOf(error)}`, { cause: error });
    });
  };
  const readTokenizer = async () => {
    const config = has("tokenizer_config.json") ? await loader.json("tokenizer_config.json") : {};
    return new Tokenizer(await loader.json("tokenizer.json"), config);
  };
  const onCompiled = (/** @type {number} */ done, /** @type {number} */ total) => progress.compiled(done, total);
  const [backend, vm, tokenizer, generation] = await Promise.all([
    driver.prepare(device, manifest, loader, { signal, onCompiled }),
    readVM(),
    readTokenizer(),
    has("generation_config.json") ? loader.json("generation_config.json") : null,
  ]);
  return { executor: new Executor(manifest, vm, backend), tokenizer, generation };
}

/**
 * The VM lies beside this module: it is the same for every model.
 * @param {Loader} loader
 * @param {AbortSignal} signal
 */
async function fetchVM(loader, signal) {
  const url = new URL("./vm.wasm", import.meta.url);
  try {
    const response = await loader.fetch(url, { signal });
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch {
    throwIfAborted(signal);
  }
  throw new WebrelaxError(
    "missing-file",
    `${url.pathname} could not be fetched: check that the whole site was uploaded.`,
  );
}
