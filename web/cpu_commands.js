/** A command stream, made ready for the CPU: each command as eight words that need nothing else to be carried out. */
import { WebrelaxError } from "./errors.js";
import { damaged } from "./stream.js";
import { COMMAND, COMMAND_WORDS } from "./vm_constants.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./cpu_memory.js").Layout} Layout
 * @typedef {{functions: import("./cpu_module.js").Kernel[], bytes: Uint8Array}} Machine the kernels over a memory
 */

/**
 * kernel, addresses of bindings and of the table's row, grid x, grid y, workgroups; or COPY, from, to, bytes, -, 1. Then,
 * of the first of a phase (phases.js), the index after its last entry, and how many workgroups it has to share.
 */
export const ENTRY_WORDS = 8;
export const GROUPS = 5;
export const END = 6;
export const TOTAL = 7;
export const COPY = -1;

export class Resolver {
  /** @param {Manifest} manifest @param {Layout} layout */
  constructor(manifest, layout) {
    this.manifest = manifest;
    this.layout = layout;
  }

  /**
   * Resolves commands until they end or `entries` is full.
   * @param {Uint32Array} commands
   * @param {number} at where to begin
   * @param {Int32Array} entries
   * @returns {{count: number, next: number}} entries written, and where to go on; -1 at the end
   */
  resolve(commands, at, entries) {
    const { table, sets } = this.layout;
    const { row_bytes } = this.manifest.table;
    let count = 0;
    for (let to = 0; to + ENTRY_WORDS <= entries.length; to += ENTRY_WORDS, count++) {
      const op = commands[at];
      if (op === COMMAND.DISPATCH) {
        const x = commands[at + 3];
        const y = commands[at + 4];
        entries[to] = commands[at + 1];
        entries[to + 1] = sets[commands[at + 2]];
        entries[to + 2] = table + commands[at + 6] * row_bytes;
        entries[to + 3] = x;
        entries[to + 4] = y;
        entries[to + GROUPS] = x * y * commands[at + 5];
      } else if (op === COMMAND.COPY) {
        const bytes = commands[at + 5];
        entries[to] = COPY;
        entries[to + 1] = this.place(commands[at + 1], commands[at + 2], bytes);
        entries[to + 2] = this.place(commands[at + 3], commands[at + 4], bytes);
        entries[to + 3] = bytes;
        entries[to + GROUPS] = 1;
      } else if (op === COMMAND.END || op === COMMAND.READ) {
        return { count, next: -1 };
      } else {
        throw damaged(`has an unknown command ${op}`);
      }
      at += COMMAND_WORDS[op];
    }
    return { count, next: at };
  }

  /**
   * @param {number} buffer
   * @param {number} offset
   * @param {number} bytes
   * @returns {number} the address; throws where the bytes are not all in the buffer
   */
  place(buffer, offset, bytes) {
    const entry = this.manifest.buffers[buffer];
    if (!entry || offset + bytes > entry.size) {
      throw new WebrelaxError(
        "format",
        `The model's program touches bytes ${offset} to ${offset + bytes} of "${entry?.name}", ` +
          `which has ${entry?.size}: build the site again.`,
      );
    }
    return this.layout.buffers[buffer] + offset;
  }
}

/**
 * Runs workgroups `first` to `last` - 1 of an entry.
 * @param {Machine} machine
 * @param {Int32Array} entries
 * @param {number} at
 * @param {number} first
 * @param {number} last
 */
export function runEntry({ functions, bytes }, entries, at, first, last) {
  const kernel = entries[at];
  if (kernel === COPY) {
    const source = entries[at + 1] >>> 0;
    bytes.copyWithin(entries[at + 2] >>> 0, source, source + (entries[at + 3] >>> 0));
  } else {
    functions[kernel](entries[at + 1], entries[at + 2], entries[at + 3], entries[at + 4], first, last);
  }
}
