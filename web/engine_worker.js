/** The engine of the CPU target, in a browser's worker. */
import { startWorker } from "./browser_workers.js";
import { serveEngine } from "./engine_server.js";

serveEngine(/** @type {any} */ (globalThis), { startWorker, fetch: globalThis.fetch.bind(globalThis) });
