/** The worker's side of an engine: loads it, and answers what remote_engine.js asks for. */
import { forTarget } from "./manifest.js";
import { Loader } from "./loader.js";
import { loadEngine } from "./load.js";
import { ProgressReport } from "./progress.js";
import { AHEAD, plain } from "./remote_engine.js";
import { wasmDriver } from "./wasm_target.js";

/**
 * @typedef {import("./pool_thread.js").Port} Port
 * @typedef {import("./remote_engine.js").Order} Order
 * @typedef {import("./remote_engine.js").Report} Report
 * @typedef {import("./remote_engine.js").LoadOptions} LoadOptions
 * @typedef {{startWorker: import("./pool.js").StartWorker, fetch: import("./loader.js").Fetch}} Host
 */

/** @param {Port} port to the engine's owner @param {Host} host what differs between a browser and Node */
export function serveEngine(port, host) {
  const server = new Server(port, host);
  port.onmessage = ({ data }) => server.receive(data);
}

class Server {
  /** @type {import("./engine.js").Engine | null} */
  #engine = null;
  #credit = 0;
  #goOn = () => {};
  #stop = new AbortController();

  /** @param {Port} port @param {Host} host */
  constructor(port, host) {
    this.port = port;
    this.host = host;
  }

  /** @param {Order} order */
  receive(order) {
    if (order.type === "load") {
      this.#load(order.options).catch((error) => this.#post({ type: "error", error: plain(error) }));
    } else if (order.type === "generate") {
      this.#stop = new AbortController();
      this.#answer(order.input, { ...order.request, signal: this.#stop.signal }).catch((error) =>
        this.#post({ type: "error", error: plain(error) }),
      );
    } else if (order.type === "reset") {
      this.#engine?.reset();
    } else {
      if (order.type === "stop") this.#stop.abort();
      this.#credit += AHEAD / 2;
      this.#goOn();
    }
  }

  /** @param {LoadOptions} options */
  async #load({ bundle, folder, profile, threads }) {
    const { startWorker, fetch } = this.host;
    const failed = new AbortController();
    const loader = new Loader(new URL(folder), { signal: failed.signal, fetch, files: bundle.files });
    const report = new ProgressReport((progress) => this.#post({ type: "progress", progress }), failed.signal, "wasm");
    const driver = wasmDriver({ profile, threads, startWorker });
    const manifest = forTarget(bundle, "wasm");
    const loading = loadEngine(driver, manifest, loader, report, failed.signal, performance.now());
    loading.catch(() => failed.abort()); // one part failing stops the others
    const engine = (this.#engine = await loading);
    engine.failed.then((error) => this.#post({ type: "failed", error: plain(error) }));
    this.#post({ type: "ready", info: engine.info });
  }

  /** @param {import("./options.js").Input} input @param {import("./options.js").Request} request */
  async #answer(input, request) {
    const pieces = /** @type {import("./engine.js").Engine} */ (this.#engine).generate(input, request);
    for (this.#credit = AHEAD; ; this.#credit--) {
      // A stop ends the wait too; the generator then tells that it was stopped.
      if (this.#credit === 0) await new Promise((resolve) => (this.#goOn = () => resolve(undefined)));
      const step = await pieces.next();
      if (step.done) return this.#post({ type: "done", outcome: step.value });
      this.#post({ type: "piece", piece: step.value });
    }
  }

  /** @param {Report} report */
  #post(report) {
    this.port.postMessage(report);
  }
}
