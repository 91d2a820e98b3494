/**
 * The kernels of the CPU target: a WebAssembly module that imports `env.memory` and exports k0, k1, ..., each
 * `kN(buffers, table, grid_x, grid_y, first, last)`: addresses of the bindings' addresses and of the table's row, and
 * which of the workgroups to run, counted x fastest.
 */
import { WebrelaxError } from "./errors.js";

/**
 * @typedef {(buffers: number, table: number, x: number, y: number, first: number, last: number) => void} Kernel
 * @typedef {{functions: Kernel[], heapBase: number}} Kernels `heapBase`: the first address that the module leaves free
 */

const MEMORY = 2;
const HAS_MAXIMUM = 1;
const SHARED = 2;

/**
 * Finds the import of the memory in a module's bytes.
 * @param {Uint8Array} bytes
 * @returns {{flags: number, minimum: number}} where its byte of flags stands, and the least number of pages
 */
export function memoryImport(bytes) {
  let at = 8;
  const number = () => {
    let value = 0;
    for (let shift = 0; at < bytes.length; shift += 7) {
      const byte = bytes[at++];
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw damaged("ends in the middle");
  };
  const skipLimits = () => {
    const flags = bytes[at++];
    number();
    if (flags & HAS_MAXIMUM) number();
  };
  while (at < bytes.length) {
    const section = bytes[at++];
    const end = number() + at;
    if (section !== 2) {
      at = end;
      continue;
    }
    for (let count = number(); count > 0; count--) {
      for (let names = 0; names < 2; names++) at = number() + at;
      const kind = bytes[at++];
      if (kind === MEMORY) {
        const flags = at++;
        return { flags, minimum: number() };
      }
      if (kind === 0) number();
      else if (kind === 1) (at++, skipLimits());
      else if (kind === 3) at += 2;
      else throw damaged("has an unknown kind of import");
    }
  }
  throw damaged("imports no memory");
}

/**
 * The same module over a shared memory. It is built without atomic instructions, so that one build serves both: only
 * what it says of its memory differs.
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
export function withSharedMemory(bytes) {
  const { flags } = memoryImport(bytes);
  if (!(bytes[flags] & HAS_MAXIMUM)) throw damaged("does not bound its memory");
  const patched = bytes.slice();
  patched[flags] |= SHARED;
  return patched;
}

/**
 * @param {WebAssembly.Module} module
 * @param {WebAssembly.Memory} memory
 * @param {number} stackTop each instance over one memory needs a stack of its own
 * @returns {Kernels}
 */
export function instantiate(module, memory, stackTop) {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const { __heap_base: base, __stack_pointer: stack } = exports;
  if (!(base instanceof WebAssembly.Global && stack instanceof WebAssembly.Global)) {
    throw damaged("does not export __heap_base and __stack_pointer");
  }
  if (stackTop) stack.value = stackTop;
  /** @type {Kernel[]} */
  const functions = [];
  for (let name; typeof exports[(name = `k${functions.length}`)] === "function"; )
    functions.push(/** @type {Kernel} */ (exports[name]));
  return { functions, heapBase: base.value };
}

/** @param {string} what */
function damaged(what) {
  return new WebrelaxError("format", `The module of kernels ${what}: build the site again.`);
}
