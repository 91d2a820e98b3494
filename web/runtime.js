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
import { startWorker } from "./browser_workers.js";
import { chooseThreads } from "./cpu_features.js";
import { throwIfAborted } from "./errors.js";
import { loadEngine } from "./load.js";
import { Loader } from "./loader.js";
import { forTarget, targetsOf } from "./manifest.js";
import { ProgressReport } from "./progress.js";
import { loadRemoteEngine } from "./remote_engine.js";
import { chooseTarget } from "./target.js";
import { webgpuDriver } from "./webgpu_target.js";

export { WebrelaxError } from "./errors.js";

/**
 * @typedef {import("./manifest.js").TargetName} TargetName
 * @typedef {import("./progress.js").Progress} Progress
 * @typedef {import("./engine.js").EngineInfo} EngineInfo
 * @typedef {Pick<import("./engine.js").Engine,
 *   "info" | "failed" | "completions" | "chat" | "reset" | "dispose">} Engine in this thread or in a worker
 * @typedef {object} EngineOptions
 * @property {string} model the bundle's folder
 * @property {(progress: Progress) => void} [onProgress]
 * @property {AbortSignal | null} [signal] stops the load
 * @property {string | null} [target] "webgpu" or "wasm" overrides the choice: the GPU where there is a real one
 * @property {string | null} [profile] overrides the choice by features
 * @property {number | null} [threads] that compute on the CPU; one where the page is not cross-origin isolated
 * @property {(target: TargetName, built: TargetName[]) => unknown} [onTarget] told which target will run, of those that
 *   the model was built for, before anything else is loaded; what it returns is awaited
 */

/**
 * Loads a model: downloads what the browser has not stored, checks every file, compiles the kernels.
 * @param {EngineOptions} options
 * @returns {Promise<Engine>}
 */
export async function createEngine(options) {
  const { model, onProgress = () => {}, signal = null, target = null, profile = null, threads = null } = options;
  const start = performance.now();
  const folder = new URL(model.endsWith("/") ? model : `${model}/`, globalThis.document?.baseURI ?? import.meta.url);
  // One part failing stops the others.
  const failed = new AbortController();
  const stop = signal ? AbortSignal.any([signal, failed.signal]) : failed.signal;
  const loader = new Loader(folder, { signal: stop });
  const progress = new ProgressReport(onProgress, stop);
  try {
    throwIfAborted(signal);
    const count = chooseThreads(threads, navigator.hardwareConcurrency ?? 1, globalThis.crossOriginIsolated === true);
    progress.phase("manifest");
    const bundle = await loader.manifest();
    const chosen = await chooseTarget(bundle, target);
    await options.onTarget?.(chosen, targetsOf(bundle));
    throwIfAborted(signal);
    if (chosen === "wasm") {
      const load = { bundle, folder: folder.href, profile, threads: count };
      return await loadRemoteEngine(load, startWorker, onProgress, stop, start);
    }
    progress.target = chosen;
    return await loadEngine(webgpuDriver({ profile }), forTarget(bundle, chosen), loader, progress, stop, start);
  } catch (error) {
    failed.abort();
    throwIfAborted(signal); // whatever it was that noticed
    throw error;
  }
}
