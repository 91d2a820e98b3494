/** Worker threads that compute beside the engine's own, over one shared memory. */
import { WebrelaxError, messageOf } from "./errors.js";
import { Share, createControl } from "./pool_share.js";

/** @typedef {import("./phases.js").Phases} Phases */

/**
 * @typedef {import("./cpu_commands.js").Resolver} Resolver
 * @typedef {import("./cpu_commands.js").Machine} Machine
 * @typedef {{module: WebAssembly.Module, memory: WebAssembly.Memory, stackTop: number, control: SharedArrayBuffer,
 *   threads: number}} Hire what a worker is started with
 * @typedef {object} WorkerLike the part of a browser's Worker that is used; Node's is made to look the same
 * @property {(message: any) => void} postMessage
 * @property {() => void} terminate
 * @property {((event: {data: any}) => void) | null} onmessage
 * @property {((event: {message?: string, preventDefault?(): void}) => void) | null} onerror
 * @property {(busy: boolean) => void} [keepAlive] Node's: whether the program must not end yet
 * @typedef {(kind: "engine" | "pool") => WorkerLike} StartWorker
 */

export class Pool {
  #workers;
  #share;
  #phases;

  /** @param {WorkerLike[]} workers @param {Share} share @param {Phases} phases */
  constructor(workers, share, phases) {
    this.#workers = workers;
    this.#share = share;
    this.#phases = phases;
  }

  /**
   * @param {WebAssembly.Module} module
   * @param {WebAssembly.Memory} memory a shared one
   * @param {Phases} phases of the model; the stacks of its layout are one a thread, the first the caller's own
   * @param {Machine} machine the caller's
   * @param {StartWorker} startWorker
   * @returns {Promise<Pool>} resolves once every worker is ready
   */
  static async start(module, memory, phases, machine, startWorker) {
    const control = createControl();
    const { stacks } = phases.layout;
    const threads = stacks.length;
    const workers = stacks.slice(1).map(() => startWorker("pool"));
    try {
      await Promise.all(
        workers.map((worker, at) => hire(worker, { module, memory, stackTop: stacks[at + 1], control, threads })),
      );
    } catch (error) {
      for (const worker of workers) worker.terminate();
      throw error;
    }
    return new Pool(workers, new Share(control, machine, threads), phases);
  }

  get threads() {
    return this.#workers.length + 1;
  }

  /**
   * Runs a command stream to its end, on the caller's thread too, and blocks it meanwhile.
   * @param {Resolver} resolver
   * @param {Uint32Array} commands
   */
  run(resolver, commands) {
    for (let at = 0; at !== -1; ) {
      const { count, next } = resolver.resolve(commands, at, this.#share.entries);
      this.#phases.plan(this.#share.entries, count);
      this.#share.run(count);
      at = next;
    }
  }

  dispose() {
    for (const worker of this.#workers) worker.terminate();
  }
}

/** @param {WorkerLike} worker @param {Hire} hire @returns {Promise<void>} */
function hire(worker, hire) {
  return new Promise((resolve, reject) => {
    const fail = (/** @type {string} */ why) =>
      reject(
        new WebrelaxError(
          "device",
          `A thread for the model did not start (${why}): load it with one thread, ` +
            "or check that the whole site was uploaded.",
        ),
      );
    worker.onerror = (event) => {
      event.preventDefault?.();
      fail(messageOf(event.message ?? "its script did not load"));
    };
    worker.onmessage = ({ data }) => (data.failed ? fail(data.failed) : resolve());
    worker.postMessage(hire);
  });
}
