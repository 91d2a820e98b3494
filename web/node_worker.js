/** A thread of an engine under Node: the engine's own, or one of its pool. */
import { parentPort, workerData } from "node:worker_threads";
import { serveEngine } from "./engine_server.js";
import { fetchFile, startWorker } from "./node_host.js";
import { joinPool } from "./pool_thread.js";

if (workerData === "engine") serveEngine(parentPort, { startWorker, fetch: fetchFile });
else joinPool(parentPort);
