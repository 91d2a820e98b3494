/** An engine that lives in a worker: the same interface, so that the page's own thread never computes. */
import { ChatCompletions, Completions } from "./completions.js";
import { busyError, disposedError } from "./engine.js";
import { WebrelaxError, messageOf, throwIfAborted } from "./errors.js";
import { aborted } from "./load.js";

/**
 * @typedef {import("./manifest.js").Bundle} Bundle
 * @typedef {import("./engine.js").EngineInfo} EngineInfo
 * @typedef {import("./engine.js").LoadStats} LoadStats
 * @typedef {import("./options.js").Input} Input
 * @typedef {import("./options.js").Request} Request
 * @typedef {import("./generate.js").Piece} Piece
 * @typedef {import("./generate.js").Outcome} Outcome
 * @typedef {import("./progress.js").Progress} Progress
 * @typedef {import("./pool.js").WorkerLike} WorkerLike
 * @typedef {{bundle: Bundle, folder: string, profile: string | null, threads: number}} LoadOptions
 * @typedef {{type: "load", options: LoadOptions} | {type: "generate", input: Input, request: Omit<Request, "signal">}
 *   | {type: "more" | "stop" | "reset"}} Order to the worker; "more" once AHEAD / 2 more pieces were used
 * @typedef {{code: import("./errors.js").ErrorCode | null, message: string}} PlainError
 * @typedef {{type: "progress", progress: Progress} | {type: "ready", info: EngineInfo} | {type: "piece", piece: Piece}
 *   | {type: "done", outcome: Outcome} | {type: "error" | "failed", error: PlainError}} Report from the worker
 */

/** Pieces that may be on their way before the first was used: enough to hide the way, few to compute in vain. */
export const AHEAD = 8;

/**
 * @param {LoadOptions} options
 * @param {import("./pool.js").StartWorker} startWorker
 * @param {(progress: Progress) => void} onProgress
 * @param {AbortSignal} stop
 * @param {number} start when it all began, on this thread's clock, in milliseconds
 * @returns {Promise<RemoteEngine>}
 */
export async function loadRemoteEngine(options, startWorker, onProgress, stop, start) {
  const begun = performance.now();
  const link = new Link(startWorker("engine"));
  try {
    link.post({ type: "load", options });
    const stopped = aborted(stop);
    stopped.catch(() => {}); // also where it is not waited for any more
    for (;;) {
      const report = await Promise.race([link.next(), stopped]);
      throwIfAborted(stop);
      if (report.type === "progress") {
        onProgress(report.progress);
      } else if (report.type === "ready") {
        const end = performance.now();
        const seconds = { manifest_s: begun - start, load_s: end - begun, total_s: end - start };
        const load = Object.fromEntries(Object.entries(seconds).map(([name, value]) => [name, value / 1000]));
        return new RemoteEngine(link, { ...report.info, load: { ...report.info.load, ...load } }, options.bundle);
      }
    }
  } catch (error) {
    link.close();
    throw error;
  }
}

/** Messages to and from the engine's worker, in order; what goes wrong is thrown where the next one is awaited. */
class Link {
  #worker;
  /** @type {Report[]} */
  #reports = [];
  /** @type {((report: Report) => void) | null} */
  #waiting = null;
  /** @type {((error: WebrelaxError) => void) | null} */
  #refuse = null;
  /** @type {(error: WebrelaxError) => void} */
  #fail = () => {};
  /** @type {WebrelaxError | null} */
  failure = null;

  /** @param {WorkerLike} worker */
  constructor(worker) {
    this.#worker = worker;
    /** @type {Promise<WebrelaxError>} settles when the engine has failed */
    this.failed = new Promise((resolve) => (this.#fail = resolve));
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => {
      event.preventDefault?.();
      // An error without a message is a script that did not load.
      const what = event.message ? `stopped (${event.message})` : "did not start";
      const advice = "load the model again, and check that the whole site was uploaded";
      this.end(new WebrelaxError("device", `The model's thread ${what}: ${advice}.`));
    };
  }

  /** @param {Order} order */
  post(order) {
    this.#worker.postMessage(order);
  }

  /** @returns {Promise<Report>} the next message that is not an error */
  next() {
    return new Promise((resolve, reject) => {
      if (this.#reports.length > 0) return this.#settle(/** @type {Report} */ (this.#reports.shift()), resolve, reject);
      if (this.failure) return reject(this.failure);
      this.#waiting = (report) => this.#settle(report, resolve, reject);
      this.#refuse = reject;
    });
  }

  /** @param {boolean} busy */
  keepAlive(busy) {
    this.#worker.keepAlive?.(busy);
  }

  /** Ends the worker without a failure, and what waits with `error`. @param {WebrelaxError} [error] */
  close(error = disposedError()) {
    this.#worker.onmessage = this.#worker.onerror = null;
    this.#worker.terminate();
    this.failure ??= error;
    this.#reports = [];
    this.#refuse?.(error);
  }

  /** The engine is of no use any more. @param {WebrelaxError} error */
  end(error) {
    this.close(error);
    this.#fail(error);
  }

  /** @param {Report} report */
  #receive(report) {
    if (report.type === "failed") return this.end(revive(report.error));
    const waiting = this.#waiting;
    this.#waiting = this.#refuse = null;
    if (waiting) waiting(report);
    else this.#reports.push(report);
  }

  /** @param {Report} report @param {(report: Report) => void} resolve @param {(error: Error) => void} reject */
  #settle(report, resolve, reject) {
    if (report.type === "error") reject(revive(report.error));
    else resolve(report);
  }
}

/** @param {PlainError} error @returns {any} */
function revive({ code, message }) {
  return code === null ? new Error(message) : new WebrelaxError(code, message);
}

/** @param {unknown} error @returns {PlainError} */
export function plain(error) {
  return { code: error instanceof WebrelaxError ? error.code : null, message: messageOf(error) };
}

/** Made by createEngine. */
export class RemoteEngine {
  #link;
  #busy = false;
  #disposed = false;

  /** @param {Link} link @param {EngineInfo} info @param {Bundle} bundle */
  constructor(link, info, bundle) {
    this.#link = link;
    this.info = info;
    /** Settles with the error when the engine fails, also between requests; it is of no use then. */
    this.failed = link.failed;
    const backend = {
      model: info.model,
      vocab: bundle.model.vocab,
      defaults: info.sampling,
      generate: (/** @type {Input} */ input, /** @type {Request} */ request) => this.#generate(input, request),
    };
    this.completions = new Completions(backend);
    this.chat = { completions: new ChatCompletions(backend) };
    link.keepAlive(false);
  }

  /**
   * @param {Input} input
   * @param {Request} request
   * @returns {AsyncGenerator<Piece, Outcome, void>}
   */
  async *#generate(input, { signal, ...request }) {
    this.#ready();
    throwIfAborted(signal);
    const link = this.#link;
    const stop = () => link.post({ type: "stop" });
    let ended = false;
    this.#busy = true;
    link.keepAlive(true);
    signal?.addEventListener("abort", stop);
    try {
      link.post({ type: "generate", input, request });
      for (let used = 1; ; used++) {
        const report = await link.next().catch((error) => {
          ended = true;
          throw error;
        });
        if (report.type === "done") {
          ended = true;
          return report.outcome;
        }
        throwIfAborted(signal); // what had come before it fired is not wanted any more
        if (report.type !== "piece") continue;
        yield report.piece;
        if (used % (AHEAD / 2) === 0) link.post({ type: "more" });
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      if (!ended) await this.#stopped();
      link.keepAlive(false);
      this.#busy = false;
    }
  }

  /** Makes the worker stop, and waits until it has: the engine is ready for the next request then. */
  async #stopped() {
    this.#link.post({ type: "stop" });
    try {
      while ((await this.#link.next()).type !== "done");
    } catch {
      // It was stopped, as asked, or has failed, which the next request tells.
    }
  }

  #ready() {
    if (this.#disposed) throw disposedError();
    if (this.#link.failure) throw this.#link.failure;
    if (this.#busy) throw busyError();
  }

  /** Forgets the conversation in the key-value cache. Answers do not depend on it: only their speed does. */
  reset() {
    this.#ready();
    this.#link.post({ type: "reset" });
  }

  /** Ends the worker and frees its memory; a running request ends with an error. */
  dispose() {
    this.#disposed = true;
    this.#link.close();
  }
}
