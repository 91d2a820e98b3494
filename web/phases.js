/**
 * Which of a step's commands a pool may run at the same time: a phase is a run of commands that touch nothing that
 * another of them writes, or a chain of commands of one workgroup each, which one thread runs in their order.
 */
import { COPY, END, ENTRY_WORDS, GROUPS, TOTAL } from "./cpu_commands.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./cpu_memory.js").Layout} Layout
 * @typedef {{start: number, end: number, written: boolean}} Range bytes that a command touches
 */

export class Phases {
  /** @type {Map<number, number>} set by the address of its list */
  #sets;
  /** @type {Map<number, Range[]>[]} of each kernel, by set */
  #ranges = [];

  /** @param {Manifest} manifest @param {Layout} layout */
  constructor(manifest, layout) {
    this.manifest = manifest;
    this.layout = layout;
    this.#sets = new Map(layout.sets.map((address, set) => [address, set]));
  }

  /**
   * Writes END and TOTAL of the first entry of each phase.
   * @param {Int32Array} entries
   * @param {number} count
   */
  plan(entries, count) {
    for (let first = 0, end; first < count; first = end) {
      end = endOfChain(entries, first, count);
      let total = 1;
      if (end - first < 2) ({ end, total } = this.#independent(entries, first, count));
      entries[first * ENTRY_WORDS + END] = end;
      entries[first * ENTRY_WORDS + TOTAL] = Math.max(total, 1); // somebody has to pass an empty one
    }
  }

  /**
   * @param {Int32Array} entries
   * @param {number} first
   * @param {number} count of all entries
   * @returns {{end: number, total: number}} index after the last entry of the phase, and its workgroups
   */
  #independent(entries, first, count) {
    let total = entries[first * ENTRY_WORDS + GROUPS];
    let end = first + 1;
    if (entries[first * ENTRY_WORDS] === COPY) return { end, total };
    const touched = [this.#touches(entries, first)];
    for (; end < count && entries[end * ENTRY_WORDS] !== COPY; end++) {
      const ranges = this.#touches(entries, end);
      if (touched.some((others) => conflict(others, ranges))) break;
      touched.push(ranges);
      total += entries[end * ENTRY_WORDS + GROUPS];
    }
    return { end, total };
  }

  /** @param {Int32Array} entries @param {number} index @returns {Range[]} */
  #touches(entries, index) {
    const kernel = entries[index * ENTRY_WORDS];
    const set = /** @type {number} */ (this.#sets.get(entries[index * ENTRY_WORDS + 1]));
    const known = (this.#ranges[kernel] ??= new Map());
    let ranges = known.get(set);
    if (!ranges) known.set(set, (ranges = this.#rangesOf(kernel, set)));
    return ranges;
  }

  /** @param {number} kernel @param {number} set @returns {Range[]} weights left out: nothing writes them */
  #rangesOf(kernel, set) {
    const { binding_sets, buffers, writes } = this.manifest;
    const written = writes?.[kernel];
    return binding_sets[set].flatMap(([buffer, offset, size], at) => {
      if (buffers[buffer].kind === "weight") return [];
      const start = this.layout.buffers[buffer] + offset;
      return [{ start, end: start + size, written: written ? written.includes(at) : true }];
    });
  }
}

/** @param {Int32Array} entries @param {number} first @param {number} count */
function endOfChain(entries, first, count) {
  let end = first;
  while (end < count && entries[end * ENTRY_WORDS + GROUPS] <= 1) end++;
  return end;
}

/** @param {Range[]} one @param {Range[]} other */
function conflict(one, other) {
  return one.some((a) => other.some((b) => (a.written || b.written) && a.start < b.end && b.start < a.end));
}
