/** @type {import("./pool.js").StartWorker} A browser's module workers. */
export function startWorker(kind) {
  // Written out, so that bundlers see the files.
  const worker =
    kind === "engine"
      ? new Worker(new URL("./engine_worker.js", import.meta.url), { type: "module" })
      : new Worker(new URL("./pool_worker.js", import.meta.url), { type: "module" });
  return /** @type {import("./pool.js").WorkerLike} */ (worker);
}
