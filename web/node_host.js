/** Node's files and threads, made to look as a browser's. */
import { openAsBlob } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { WebrelaxError, messageOf } from "./errors.js";

/** @type {import("./loader.js").Fetch} A file as the body of a response. */
export async function fetchFile(url, { signal }) {
  signal?.throwIfAborted();
  try {
    return new Response(await openAsBlob(url));
  } catch (error) {
    throw new WebrelaxError(
      "missing-file",
      `${fileURLToPath(url)} cannot be read (${messageOf(error)}): check the path, and that the whole site is there.`,
      { cause: error },
    );
  }
}

/** @type {import("./pool.js").StartWorker} */
export function startWorker(kind) {
  const worker = new Worker(new URL("./node_worker.js", import.meta.url), { workerData: kind });
  /** @type {import("./pool.js").WorkerLike} */
  const like = {
    postMessage: (message) => worker.postMessage(message),
    terminate: () => void worker.terminate(),
    onmessage: null,
    onerror: null,
    keepAlive: (busy) => (busy ? worker.ref() : worker.unref()),
  };
  worker.on("message", (data) => like.onmessage?.({ data }));
  worker.on("error", (error) => like.onerror?.({ message: messageOf(error) }));
  return like;
}
