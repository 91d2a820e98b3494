/**
 * The entry for Node 20 and later: the same interface as runtime.js, on the CPU.
 *
 *     import { createEngine } from "./site/node.js";
 *     const engine = await createEngine({ model: "site/models/NAME" });
 *
 * The model computes in threads of its own, so that the program goes on; a loaded engine that is idle does not keep the
 * program from ending.
 */
import { availableParallelism } from "node:os";
import { pathToFileURL } from "node:url";
import { chooseThreads } from "./cpu_features.js";
import { WebrelaxError, throwIfAborted } from "./errors.js";
import { Loader } from "./loader.js";
import { targetsOf } from "./manifest.js";
import { fetchFile, startWorker } from "./node_host.js";
import { ProgressReport } from "./progress.js";
import { loadRemoteEngine } from "./remote_engine.js";

export { WebrelaxError } from "./errors.js";

/**
 * Loads a model from its folder and checks every file.
 * @param {import("./runtime.js").EngineOptions} options `model` is a path, relative to the working directory
 * @returns {Promise<import("./runtime.js").Engine>}
 */
export async function createEngine(options) {
  const { model, onProgress = () => {}, signal = null, profile = null, threads = null } = options;
  const start = performance.now();
  const folder = pathToFileURL(`${model}/`);
  const stop = signal ?? new AbortController().signal;
  throwIfAborted(signal);
  const count = chooseThreads(threads, availableParallelism(), true);
  new ProgressReport(onProgress, stop).phase("manifest");
  const bundle = await new Loader(folder, { signal: stop, fetch: fetchFile }).manifest();
  const target = options.target ?? "wasm";
  if (target !== "wasm" || !bundle.targets.wasm) {
    throw new WebrelaxError("options", 'Node runs the target "wasm": build the model with it, and ask for no other.');
  }
  await options.onTarget?.(target, targetsOf(bundle));
  throwIfAborted(signal);
  const load = { bundle, folder: folder.href, profile, threads: count };
  return loadRemoteEngine(load, startWorker, onProgress, stop, start);
}
