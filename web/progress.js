/** What a load tells of itself. */
import { formatBytes } from "./errors.js";

/**
 * @typedef {import("./manifest.js").TargetName} TargetName
 * @typedef {"manifest" | "device" | "download" | "compile" | "ready"} Phase
 * @typedef {{phase: Phase, text: string, loaded: number, total: number, cached: number, compiled: number,
 *   kernels: number}} Progress bytes loaded (of which from the cache) of the total; kernels compiled of all. Download
 *   and compilation go on at the same time: the phase is "download" until every byte is there.
 */

export class ProgressReport {
  /**
   * @param {(progress: Progress) => void} listener
   * @param {AbortSignal} stop ends the reports
   * @param {TargetName} [target] for the texts, once it is known
   */
  constructor(listener, stop, target) {
    this.listener = listener;
    this.stop = stop;
    this.target = target;
    /** @type {Progress} */
    this.state = { phase: "manifest", text: "", loaded: 0, total: 0, cached: 0, compiled: 0, kernels: 0 };
  }

  /** @param {Phase} phase */
  phase(phase) {
    const { loaded, total, cached, compiled, kernels } = this.state;
    const source = cached === loaded && cached > 0 ? "Reading stored files" : "Downloading";
    const texts = {
      manifest: "Looking up the model",
      device: this.target === "wasm" ? "Setting up the CPU" : "Opening the GPU",
      download: `${source}: ${formatBytes(loaded)} of ${formatBytes(total)}`,
      compile: `Compiling kernels: ${compiled} of ${kernels}`,
      ready: "Ready",
    };
    this.state = { ...this.state, phase, text: texts[phase] };
    if (!this.stop.aborted) this.listener(this.state);
  }

  /** @param {number} total */
  expect(total) {
    this.state.total = total;
    this.phase("download");
  }

  /** @param {number} bytes @param {boolean} cached */
  bytes(bytes, cached) {
    this.state.loaded += bytes;
    if (cached) this.state.cached += bytes;
    this.#advance();
  }

  /** @param {number} done @param {number} total */
  compiled(done, total) {
    this.state.compiled = done;
    this.state.kernels = total;
    this.#advance();
  }

  #advance() {
    this.phase(this.state.loaded < this.state.total ? "download" : "compile");
  }
}
