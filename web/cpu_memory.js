/** Where everything of a model lies in the one memory of the CPU target. */
import { WebrelaxError, formatBytes } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {{stacks: number[], table: number, sets: number[], buffers: number[], pages: number}} Layout addresses: the
 *   top of each thread's stack, the symbol table, each binding set's list of addresses, each buffer
 */

const PAGE = 65536;
const MOST_PAGES = 65536; // of a memory with 32-bit addresses
const STACK = 256 * 1024;
const ALIGNMENT = 64; // a line of the processor's cache

/**
 * @param {Manifest} manifest
 * @param {{heapBase: number, minimum: number}} module of kernels: the first address that it leaves free, and the least
 *   number of pages that it asks for
 * @param {number} threads
 * @returns {Layout}
 */
export function planMemory(manifest, { heapBase, minimum }, threads) {
  let end = heapBase;
  const take = (/** @type {number} */ bytes) => {
    const start = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
    end = start + bytes;
    return start;
  };
  const stacks = Array.from({ length: threads }, () => take(STACK) + STACK);
  const table = take(manifest.table.row_bytes * manifest.table.rows);
  const sets = manifest.binding_sets.map((bindings) => take(4 * bindings.length));
  const buffers = manifest.buffers.map(({ size }) => take(size));
  const pages = Math.max(minimum, Math.ceil(end / PAGE));
  if (pages > MOST_PAGES) {
    throw new WebrelaxError(
      "limits",
      `${manifest.name} needs ${formatBytes(end)} of memory but WebAssembly's is at most 4.29 GB: ` +
        "use a device with a GPU, a shorter context or a smaller model.",
    );
  }
  return { stacks, table, sets, buffers, pages };
}

/**
 * A memory of exactly this size: it never grows, so that views of it stay valid.
 * @param {Manifest} manifest
 * @param {Layout} layout
 * @param {boolean} shared between threads
 * @returns {WebAssembly.Memory} zero, but for the binding sets' addresses
 */
export function createMemory(manifest, { sets, buffers, pages }, shared) {
  let memory;
  try {
    memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared });
  } catch (error) {
    throw new WebrelaxError(
      "out-of-memory",
      `This browser gives no ${formatBytes(pages * PAGE)} of memory for ${manifest.name}: ` +
        "close other tabs, or choose a smaller model.",
      { cause: error },
    );
  }
  const words = new Uint32Array(memory.buffer);
  manifest.binding_sets.forEach((bindings, set) =>
    bindings.forEach(([buffer, offset], at) => (words[sets[set] / 4 + at] = buffers[buffer] + offset)),
  );
  return memory;
}
