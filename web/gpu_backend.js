/** Carries out steps on the GPU: one command buffer each, and one more for every value that is read back on the way. */
import { Dispatches } from "./dispatches.js";
import { WebrelaxError } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./device.js").Device} Device
 * @typedef {import("./pipelines.js").Pipelines} Pipelines
 * @typedef {import("./executor.js").Range} Range
 * @typedef {import("./executor.js").Step} Step
 * @typedef {import("./executor.js").Backend} Backend
 */

/** @implements {Backend} */
export class GPUBackend {
  #dispatches;
  /** @type {Map<number, GPUBuffer>} read-back buffers by size */
  #staging = new Map();

  /**
   * @param {Device} device
   * @param {Manifest} manifest
   * @param {GPUBuffer[]} buffers
   * @param {Pipelines} pipelines
   */
  constructor(device, manifest, buffers, pipelines) {
    this.device = device;
    this.buffers = buffers;
    this.pipelines = pipelines;
    const { row_bytes, rows } = manifest.table;
    this.table = device.gpu.createBuffer({
      label: "symbol table",
      size: row_bytes * rows,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    this.#dispatches = new Dispatches(device, manifest, buffers, pipelines, this.table);
  }

  check() {
    this.device.check();
  }

  /** @param {number} buffer @param {number} offset @param {Int32Array<ArrayBuffer>} data */
  write(buffer, offset, data) {
    this.device.gpu.queue.writeBuffer(this.buffers[buffer], offset, data);
  }

  /** Puts another buffer in the place of one. @param {number} index @param {GPUBuffer} buffer */
  replaceBuffer(index, buffer) {
    this.#dispatches.replaceBuffer(index, buffer);
  }

  /** Submits before it first waits. @param {Step} step @param {Range | null} read */
  async run({ name, captured, commands, table }, read) {
    const { queue } = this.device.gpu;
    queue.writeBuffer(this.table, 0, table);
    const encoder = this.device.gpu.createCommandEncoder({ label: name });
    if (captured) this.#dispatches.replay(encoder, name, commands);
    else this.#dispatches.encode(encoder, commands);
    if (read === null) {
      queue.submit([encoder.finish()]);
      return null;
    }
    const { buffer, offset, bytes } = read;
    const staging = this.#stagingBuffer(bytes);
    encoder.copyBufferToBuffer(this.buffers[buffer], offset, staging, 0, bytes);
    queue.submit([encoder.finish()]);
    return this.#map(staging, bytes);
  }

  async idle() {
    await this.device.gpu.queue.onSubmittedWorkDone();
    this.device.check();
  }

  /** @param {number} bytes */
  #stagingBuffer(bytes) {
    let buffer = this.#staging.get(bytes);
    if (!buffer) {
      const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
      buffer = this.device.gpu.createBuffer({ label: "read-back", size: bytes, usage });
      this.#staging.set(bytes, buffer);
    }
    return buffer;
  }

  /** @param {GPUBuffer} staging @param {number} bytes */
  async #map(staging, bytes) {
    try {
      await staging.mapAsync(GPUMapMode.READ, 0, bytes);
    } catch (error) {
      // A lost device rejects the mapping just before it says so itself.
      await Promise.race([this.device.failed, new Promise((resolve) => setTimeout(resolve, 500))]);
      this.device.check();
      throw new WebrelaxError("device-lost", "The GPU stopped answering: load the model again to go on.", {
        cause: error,
      });
    }
    let copy;
    try {
      copy = staging.getMappedRange(0, bytes).slice(0);
    } finally {
      staging.unmap(); // or every later submission that writes to it would be refused
    }
    this.device.check();
    return copy;
  }
}
