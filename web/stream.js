/** The command stream that a VM call gives (docs/vm.md). */
import { WebrelaxError } from "./errors.js";
import { COMMAND, COMMAND_WORDS } from "./vm_constants.js";

/**
 * @typedef {{op: 1, kernel: number, set: number, grid: [number, number, number], row: number}} Dispatch
 * @typedef {{op: 2, source: number, sourceOffset: number, target: number, targetOffset: number, bytes: number}} Copy
 * @typedef {{op: 3, buffer: number, offset: number}} Read a value that the host has to read: always the last command
 */

/** @param {Uint32Array} words @returns {Generator<Dispatch | Copy | Read, void>} the commands before END */
export function* parse(words) {
  for (let at = 0; ;) {
    const op = words[at];
    if (op === COMMAND.DISPATCH) {
      const [kernel, set, x, y, z, row] = words.subarray(at + 1, at + 7);
      yield { op: COMMAND.DISPATCH, kernel, set, grid: [x, y, z], row };
    } else if (op === COMMAND.COPY) {
      const [source, sourceOffset, target, targetOffset, bytes] = words.subarray(at + 1, at + 6);
      yield { op: COMMAND.COPY, source, sourceOffset, target, targetOffset, bytes };
    } else if (op === COMMAND.READ) {
      yield { op: COMMAND.READ, buffer: words[at + 1], offset: words[at + 2] };
      return;
    } else if (op === COMMAND.END) {
      return;
    } else {
      throw damaged(`has an unknown command ${op}`);
    }
    at += COMMAND_WORDS[op];
  }
}

/** @param {string} what */
export function damaged(what) {
  return new WebrelaxError("format", `The command stream ${what}: build the site again.`);
}
