/**
 * Runs the functions of a bundle: one VM call a step gives a command stream, which becomes one command buffer.
 * A step writes its inputs and the symbol table. Where a function needs a value that the GPU computes, the VM suspends,
 * the value is read back, and the VM goes on: one command buffer more. Calls must not overlap.
 */
import { Dispatches, parse } from "./dispatches.js";
import { WebrelaxError, messageOf } from "./errors.js";
import { COMMAND, STATUS } from "./vm_constants.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").FunctionEntry} FunctionEntry
 * @typedef {import("./device.js").Device} Device
 * @typedef {import("./pipelines.js").Pipelines} Pipelines
 * @typedef {{status: number, commands: Uint32Array, table: Int32Array}} CallResult
 * @typedef {{call(index: number, args: Int32Array, firstRow: number, rows: number): CallResult,
 *   resume(value: number): CallResult}} VM
 * @typedef {Record<string, number>} Variables values of the symbolic dimensions
 * @typedef {Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>} Values by the result's element type
 */

export class Executor {
  #dispatches;
  /** Whether captured functions are replayed. */
  replay = true;
  /** @type {Map<number, GPUBuffer>} read-back buffers by size */
  #staging = new Map();

  /**
   * @param {Device} device
   * @param {Manifest} manifest
   * @param {VM} vm
   * @param {GPUBuffer[]} buffers
   * @param {Pipelines} pipelines
   */
  constructor(device, manifest, vm, buffers, pipelines) {
    this.device = device;
    this.manifest = manifest;
    this.vm = vm;
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

  /**
   * Submits one call of a function.
   * @param {string} name
   * @param {Variables} variables
   * @param {Record<string, Int32Array>} inputs data of the arguments that have memory
   * @param {string | null} [result] the result to read back
   * @returns {Promise<Values | null>} that result; resolves once it is on the host
   */
  async run(name, variables, inputs, result = null) {
    this.device.check();
    const entry = this.manifest.functions[name];
    let step = this.#call(name, variables);
    this.#writeInputs(entry, inputs);
    while (step.status === STATUS.SUSPENDED) step = this.#resume(name, await this.#readValue(name, step));
    const encoder = this.#encode(name, step);
    if (result === null) {
      this.#submit(encoder);
      return null;
    }
    const found = entry.results.find((candidate) => candidate.name === result);
    if (!found)
      throw new WebrelaxError("format", `Function "${name}" has no result "${result}": build the site again.`);
    // A dimension may be what the GPU computed: the table has it.
    const known = { ...Object.fromEntries(entry.slots.map((slot, at) => [slot, step.table[at]])), ...variables };
    const bytes = found.shape.reduce((/** @type {number} */ n, d) => n * dimension(d, known, name), 4);
    if (bytes === 0) {
      this.#submit(encoder);
      return asArray(found.dtype, new ArrayBuffer(0));
    }
    return asArray(found.dtype, await this.#read(encoder, found.buffer, found.offset, bytes));
  }

  /** Puts another buffer in the place of one. @param {number} index @param {GPUBuffer} buffer */
  replaceBuffer(index, buffer) {
    this.#dispatches.replaceBuffer(index, buffer);
  }

  /** Waits until the GPU has done everything submitted so far. */
  async idle() {
    await this.device.gpu.queue.onSubmittedWorkDone();
    this.device.check();
  }

  /**
   * How many dispatches a call makes; runs nothing.
   * @param {string} name
   * @param {Variables} variables
   */
  countDispatches(name, variables) {
    let count = 0;
    for (const command of parse(this.#call(name, variables).commands)) if (command.op === COMMAND.DISPATCH) count++;
    return count;
  }

  /** @param {string} name @param {Variables} variables */
  #call(name, variables) {
    const entry = this.manifest.functions[name];
    const args = entry.arguments.flatMap(({ shape }) => shape.map((d) => dimension(d, variables, name)));
    return refusable(name, () => this.vm.call(entry.index, Int32Array.from(args), 0, this.manifest.table.rows));
  }

  /** @param {string} name @param {number} value */
  #resume(name, value) {
    return refusable(name, () => this.vm.resume(value));
  }

  /**
   * Does what a suspended call has given so far, and reads the value that it waits for.
   * @param {string} name
   * @param {CallResult} step
   */
  async #readValue(name, step) {
    const read = [...parse(step.commands)].at(-1);
    if (read?.op !== COMMAND.READ)
      throw new WebrelaxError("format", `Function "${name}" waits for nothing: build the site again.`);
    const bytes = await this.#read(this.#encode(name, step), read.buffer, read.offset, 4);
    return new Int32Array(bytes)[0];
  }

  /** Writes the table and encodes the commands. @param {string} name @param {CallResult} step */
  #encode(name, { commands, table }) {
    this.device.gpu.queue.writeBuffer(this.table, 0, this.#tableImage(table));
    const encoder = this.device.gpu.createCommandEncoder({ label: name });
    if (this.replay && this.manifest.functions[name].captured) this.#dispatches.replay(encoder, name, commands);
    else this.#dispatches.encode(encoder, commands);
    return encoder;
  }

  /** @param {GPUCommandEncoder} encoder */
  #submit(encoder) {
    this.device.gpu.queue.submit([encoder.finish()]);
  }

  /**
   * Submits, and gives bytes of a buffer once they are there.
   * @param {GPUCommandEncoder} encoder
   * @param {number} buffer
   * @param {number} offset
   * @param {number} bytes
   */
  async #read(encoder, buffer, offset, bytes) {
    const staging = this.#stagingBuffer(bytes);
    encoder.copyBufferToBuffer(this.buffers[buffer], offset, staging, 0, bytes);
    this.#submit(encoder);
    return this.#map(staging, bytes);
  }

  /** The VM's rows, each at the stride that dynamic offsets need. @param {Int32Array} table */
  #tableImage(table) {
    const { row_bytes, rows } = this.manifest.table;
    const slots = table.length / rows;
    const image = new Int32Array((row_bytes / 4) * rows);
    for (let row = 0; row < rows; row++)
      image.set(table.subarray(row * slots, (row + 1) * slots), (row * row_bytes) / 4);
    return image;
  }

  /**
   * One write a buffer: the arguments' memory lies side by side.
   * @param {FunctionEntry} entry
   * @param {Record<string, Int32Array>} inputs
   */
  #writeInputs(entry, inputs) {
    /** @type {Map<number, {offset: number, data: Int32Array}[]>} */
    const writes = new Map();
    for (const { name, buffer, offset } of entry.arguments) {
      if (buffer === undefined || offset === undefined) continue;
      const list = writes.get(buffer) ?? [];
      list.push({ offset, data: inputs[name] });
      writes.set(buffer, list);
    }
    for (const [buffer, list] of writes) {
      const start = Math.min(...list.map(({ offset }) => offset));
      const end = Math.max(...list.map(({ offset, data }) => offset + data.byteLength));
      const image = new Int32Array((end - start) / 4);
      for (const { offset, data } of list) image.set(data, (offset - start) / 4);
      this.device.gpu.queue.writeBuffer(this.buffers[buffer], start, image);
    }
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

/**
 * @param {number | string} d a number or the name of a variable
 * @param {Variables} variables
 * @param {string} name the function, for the message
 */
function dimension(d, variables, name) {
  if (typeof d === "number") return d;
  if (d in variables) return variables[d];
  throw new WebrelaxError("format", `Function "${name}" has an unknown variable "${d}": build the site again.`);
}

/** @param {string} dtype @param {ArrayBuffer} bytes @returns {Values} */
function asArray(dtype, bytes) {
  return dtype === "i32" ? new Int32Array(bytes) : new Float32Array(bytes);
}

/** @param {string} name @param {() => CallResult} call */
function refusable(name, call) {
  try {
    return call();
  } catch (error) {
    if (error instanceof WebrelaxError) throw error;
    throw new WebrelaxError("format", `The call of "${name}" was refused: ${messageOf(error)}`, { cause: error });
  }
}
