// The page's side of vm.wasm: docs/vm.md describes its exports and what comes out of it.

import { FAULT_TEXT, LIMIT, STATUS } from "./vm_constants.js";

/**
 * @typedef {object} Step What one call, or one resumption, gave. Both views are valid until the next one.
 * @property {number} status STATUS.DONE, or STATUS.SUSPENDED: the last command is READ, and resume() goes on.
 * @property {Uint32Array} commands the command stream
 * @property {Int32Array} table rows * row_slots values, for the symbol table from row `firstRow` on
 */

/**
 * The exports of vm.wasm, but for its memory.
 * @typedef {Record<"vm_arguments" | "vm_table" | "vm_table_words" | "vm_stream" | "vm_stream_words" |
 *   "vm_error_function" | "vm_error_instruction" | "vm_error_text" | "vm_error_expected" | "vm_error_actual",
 *   () => number> & Record<"vm_allocate" | "vm_text" | "vm_text_bytes" | "vm_resume", (value: number) => number> &
 *   Record<"vm_load" | "vm_find", (pointer: number, bytes: number) => number> &
 *   Record<"vm_call", (index: number, count: number, firstRow: number, rows: number) => number>} Exports
 */

/** The VM refused a module or a call; the message is one sentence. */
export class VMError extends Error {
  /**
   * @param {number} code the fault
   * @param {{message: string, expected: number, actual: number, function: string | number, instruction: number}} values
   */
  constructor(code, values) {
    const text = FAULT_TEXT[code] ?? `the VM stopped with the unknown code ${code}`;
    super(text.replace(/\{(\w+)\}/g, (_, key) => String(values[/** @type {keyof typeof values} */ (key)])));
    this.name = "VMError";
    this.code = code;
    this.expected = values.expected;
    this.actual = values.actual;
  }
}

/** A VM with one loaded module. */
export class VM {
  #exports;
  #memory;

  /** @param {WebAssembly.Instance} instance of vm.wasm */
  constructor(instance) {
    this.#exports = /** @type {Exports} */ (/** @type {unknown} */ (instance.exports));
    this.#memory = /** @type {WebAssembly.Memory} */ (instance.exports.memory);
  }

  /**
   * Replaces the module.
   * @param {Uint8Array} bytes module.bin
   */
  load(bytes) {
    const pointer = this.#exports.vm_allocate(bytes.length);
    if (pointer === 0) {
      if (bytes.length <= LIMIT.MODULE_BYTES) throw new Error("there is not enough memory to load the model's program");
      throw new Error(`the model's program has ${bytes.length} bytes, more than the limit of ${LIMIT.MODULE_BYTES}`);
    }
    new Uint8Array(this.#memory.buffer, pointer, bytes.length).set(bytes);
    this.#check(this.#exports.vm_load(pointer, bytes.length));
  }

  /**
   * @param {string} name
   * @returns {number} the function's index, or -1
   */
  find(name) {
    const bytes = new TextEncoder().encode(name);
    const pointer = this.#exports.vm_arguments();
    if (bytes.length > 4 * LIMIT.ARGUMENTS) return -1;
    new Uint8Array(this.#memory.buffer, pointer, bytes.length).set(bytes);
    return this.#exports.vm_find(pointer, bytes.length);
  }

  /**
   * @param {number} index of the function
   * @param {Int32Array} args the dimensions of its parameters, flattened
   * @param {number} [firstRow] the table row of the call; nested calls use the `rows - 1` after it
   * @param {number} [rows]
   * @returns {Step}
   */
  call(index, args, firstRow = 0, rows = 1) {
    const held = args.subarray(0, LIMIT.ARGUMENTS); // a longer list is refused: only its length matters
    new Int32Array(this.#memory.buffer, this.#exports.vm_arguments(), held.length).set(held);
    return this.#step(this.#exports.vm_call(index, args.length, firstRow, rows));
  }

  /**
   * Goes on after STATUS.SUSPENDED.
   * @param {number} value the i32 that READ asked for
   * @returns {Step}
   */
  resume(value) {
    return this.#step(this.#exports.vm_resume(value));
  }

  /**
   * @param {number} status
   * @returns {Step}
   */
  #step(status) {
    this.#check(status);
    // The memory's buffer is a new one after each growth: views are made when they are needed.
    const { buffer } = this.#memory;
    return {
      status,
      commands: new Uint32Array(buffer, this.#exports.vm_stream(), this.#exports.vm_stream_words()),
      table: new Int32Array(buffer, this.#exports.vm_table(), this.#exports.vm_table_words()),
    };
  }

  /** @param {number} status */
  #check(status) {
    if (status === STATUS.DONE || status === STATUS.SUSPENDED) return;
    const index = this.#exports.vm_error_function();
    throw new VMError(status, {
      message: this.#text(this.#exports.vm_error_text()),
      expected: this.#exports.vm_error_expected(),
      actual: this.#exports.vm_error_actual(),
      function: this.#text(index) || index,
      instruction: this.#exports.vm_error_instruction(),
    });
  }

  /**
   * @param {number} index of a text of the module: first the functions' names
   * @returns {string} empty where there is none
   */
  #text(index) {
    const bytes = this.#exports.vm_text_bytes(index);
    return new TextDecoder().decode(new Uint8Array(this.#memory.buffer, this.#exports.vm_text(index), bytes));
  }
}

/**
 * @param {BufferSource | WebAssembly.Module} wasm vm.wasm
 * @param {Uint8Array} module module.bin
 * @returns {Promise<VM>}
 */
export async function loadVM(wasm, module) {
  const compiled = wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm);
  const vm = new VM(await WebAssembly.instantiate(compiled));
  vm.load(module);
  return vm;
}
