/**
 * Runs the functions of a bundle: one VM call a step gives a command stream, which a backend carries out.
 * A step writes its inputs and the symbol table. Where a function needs a value that the device computes, the VM
 * suspends, the value is read back, and the VM goes on. Calls must not overlap.
 */
import { WebrelaxError, messageOf } from "./errors.js";
import { parse } from "./stream.js";
import { COMMAND, STATUS } from "./vm_constants.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").FunctionEntry} FunctionEntry
 * @typedef {{status: number, commands: Uint32Array, table: Int32Array}} CallResult
 * @typedef {{call(index: number, args: Int32Array, firstRow: number, rows: number): CallResult,
 *   resume(value: number): CallResult}} VM
 * @typedef {Record<string, number>} Variables values of the symbolic dimensions
 * @typedef {Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>} Values by the result's element type
 * @typedef {{buffer: number, offset: number, bytes: number}} Range of a buffer, in bytes
 * @typedef {{name: string, captured: boolean, commands: Uint32Array, table: Int32Array<ArrayBuffer>}} Step what a
 *   function has to do: its commands, whether each of its calls makes the same dispatches, and the rows of the symbol
 *   table, each at the manifest's stride. The views are valid until the next call of the VM.
 * @typedef {object} Backend What carries out the commands: a GPU, or this machine's processor. It holds the buffers.
 * @property {() => void} check throws what has befallen the device
 * @property {(buffer: number, offset: number, data: Int32Array<ArrayBuffer>) => void} write
 * @property {(step: Step, read: Range | null) => Promise<ArrayBuffer | null>} run begins at once; resolves with the
 *   bytes of the range as they are after the step, without one perhaps before the step is done
 * @property {() => Promise<void>} idle resolves when everything is done
 */

/** @template {Backend} [B=Backend] */
export class Executor {
  /** Whether captured functions are replayed. */
  replay = true;

  /** @param {Manifest} manifest @param {VM} vm @param {B} backend */
  constructor(manifest, vm, backend) {
    this.manifest = manifest;
    this.vm = vm;
    this.backend = backend;
  }

  /**
   * Runs one call of a function.
   * @param {string} name
   * @param {Variables} variables
   * @param {Record<string, Int32Array>} inputs data of the arguments that have memory
   * @param {string | null} [result] the result to read back
   * @returns {Promise<Values | null>} that result, valid until the next call; resolves once it is on the host
   */
  async run(name, variables, inputs, result = null) {
    this.backend.check();
    const entry = this.manifest.functions[name];
    let step = this.#call(name, variables);
    this.#writeInputs(entry, inputs);
    while (step.status === STATUS.SUSPENDED) step = this.#resume(name, await this.#readValue(name, step));
    if (result === null) {
      await this.#carryOut(name, step, null);
      return null;
    }
    const found = entry.results.find((candidate) => candidate.name === result);
    if (!found)
      throw new WebrelaxError("format", `Function "${name}" has no result "${result}": build the site again.`);
    // A dimension may be what the device computed: the table has it.
    const known = { ...Object.fromEntries(entry.slots.map((slot, at) => [slot, step.table[at]])), ...variables };
    const bytes = found.shape.reduce((/** @type {number} */ n, d) => n * dimension(d, known, name), 4);
    if (bytes === 0) {
      await this.#carryOut(name, step, null);
      return asArray(found.dtype, new ArrayBuffer(0));
    }
    const { buffer, offset } = found;
    return asArray(
      found.dtype,
      /** @type {ArrayBuffer} */ (await this.#carryOut(name, step, { buffer, offset, bytes })),
    );
  }

  /** Waits until everything that was begun is done. */
  idle() {
    return this.backend.idle();
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
    const range = { buffer: read.buffer, offset: read.offset, bytes: 4 };
    return new Int32Array(/** @type {ArrayBuffer} */ (await this.#carryOut(name, step, range)))[0];
  }

  /** @param {string} name @param {CallResult} step @param {Range | null} read */
  #carryOut(name, { commands, table }, read) {
    const captured = this.replay && this.manifest.functions[name].captured;
    return this.backend.run({ name, captured, commands, table: this.#tableImage(table) }, read);
  }

  /** The VM's rows, each at the manifest's stride. @param {Int32Array} table */
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
      this.backend.write(buffer, start, image);
    }
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
