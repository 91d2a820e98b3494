/**
 * Runs the functions of a bundle: one VM call a step gives a command stream, which becomes one command buffer.
 * Bind groups are made once; a step writes its inputs and the symbol table.
 */
import { WebrelaxError, messageOf } from "./errors.js";
import { COMMAND, COMMAND_WORDS } from "./vm_constants.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").FunctionEntry} FunctionEntry
 * @typedef {import("./device.js").Device} Device
 * @typedef {import("./pipelines.js").Pipelines} Pipelines
 * @typedef {{status: number, commands: Uint32Array, table: Int32Array}} CallResult
 * @typedef {{call(index: number, args: Int32Array, firstRow: number, rows: number): CallResult}} VM
 * @typedef {Record<string, number>} Variables values of the symbolic dimensions
 */

export class Executor {
  /** @type {(GPUBindGroup | undefined)[][]} bind group of [layout][set] */
  #groups;
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
    this.#groups = pipelines.layouts.map(() => []);
    const { row_bytes, rows } = manifest.table;
    this.table = device.gpu.createBuffer({
      label: "symbol table",
      size: row_bytes * rows,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
  }

  /**
   * Submits one call of a function.
   * @param {string} name
   * @param {Variables} variables
   * @param {Record<string, Int32Array>} inputs data of the arguments that have memory
   * @param {string | null} [result] the result to read back
   * @returns {Promise<Float32Array<ArrayBuffer> | null>} that result; resolves once it is on the host
   */
  async run(name, variables, inputs, result = null) {
    this.device.check();
    const entry = this.manifest.functions[name];
    const { commands, table } = this.#call(name, variables);
    const { queue } = this.device.gpu;
    this.#writeInputs(entry, inputs);
    queue.writeBuffer(this.table, 0, this.#tableImage(table));
    const encoder = this.device.gpu.createCommandEncoder({ label: name });
    this.#encode(encoder, commands);
    if (result === null) {
      queue.submit([encoder.finish()]);
      return null;
    }
    const found = entry.results.find((candidate) => candidate.name === result);
    if (!found)
      throw new WebrelaxError("format", `Function "${name}" has no result "${result}": build the site again.`);
    const bytes = found.shape.reduce((/** @type {number} */ n, d) => n * dimension(d, variables, name), 4);
    const staging = this.#stagingBuffer(bytes);
    encoder.copyBufferToBuffer(this.buffers[found.buffer], found.offset, staging, 0, bytes);
    queue.submit([encoder.finish()]);
    return this.#map(staging, bytes);
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
    try {
      return this.vm.call(entry.index, Int32Array.from(args), 0, this.manifest.table.rows);
    } catch (error) {
      if (error instanceof WebrelaxError) throw error;
      throw new WebrelaxError("format", `The call of "${name}" was refused: ${messageOf(error)}`, { cause: error });
    }
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

  /** @param {GPUCommandEncoder} encoder @param {Uint32Array} commands */
  #encode(encoder, commands) {
    /** @type {GPUComputePassEncoder | null} */
    let pass = null;
    for (const command of parse(commands)) {
      if (command.op === COMMAND.COPY) {
        pass?.end();
        pass = null;
        const { source, sourceOffset, target, targetOffset, bytes } = command;
        encoder.copyBufferToBuffer(this.buffers[source], sourceOffset, this.buffers[target], targetOffset, bytes);
        continue;
      }
      pass ??= encoder.beginComputePass();
      pass.setPipeline(this.pipelines.of(command.kernel));
      pass.setBindGroup(0, this.#group(this.pipelines.layoutOf(command.kernel), command.set), [
        command.row * this.manifest.table.row_bytes,
      ]);
      pass.dispatchWorkgroups(...command.grid);
    }
    pass?.end();
  }

  /** @param {number} layout @param {number} set */
  #group(layout, set) {
    return (this.#groups[layout][set] ??= this.device.gpu.createBindGroup({
      layout: this.pipelines.layouts[layout],
      entries: [
        { binding: 0, resource: { buffer: this.table, size: this.manifest.table.used_bytes } },
        ...this.manifest.binding_sets[set].map(([buffer, offset, size], index) => ({
          binding: index + 1,
          resource: { buffer: this.buffers[buffer], offset, size },
        })),
      ],
    }));
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
      copy = new Float32Array(staging.getMappedRange(0, bytes).slice(0));
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

/**
 * @typedef {{op: 1, kernel: number, set: number, grid: [number, number, number], row: number}} Dispatch
 * @typedef {{op: 2, source: number, sourceOffset: number, target: number, targetOffset: number, bytes: number}} Copy
 */

/** @param {Uint32Array} words @returns {Generator<Dispatch | Copy, void>} the commands before END */
function* parse(words) {
  for (let at = 0; ;) {
    const op = words[at];
    if (op === COMMAND.DISPATCH) {
      const [kernel, set, x, y, z, row] = words.subarray(at + 1, at + 7);
      yield { op: COMMAND.DISPATCH, kernel, set, grid: [x, y, z], row };
    } else if (op === COMMAND.COPY) {
      const [source, sourceOffset, target, targetOffset, bytes] = words.subarray(at + 1, at + 6);
      yield { op: COMMAND.COPY, source, sourceOffset, target, targetOffset, bytes };
    } else if (op === COMMAND.END) {
      return;
    } else {
      throw new WebrelaxError("format", `The command stream has an unknown command ${op}: build the site again.`);
    }
    at += COMMAND_WORDS[op];
  }
}
