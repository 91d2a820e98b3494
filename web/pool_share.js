/**
 * How the threads of a pool share one step's commands. All of them walk the same list of entries (cpu_commands.js), phase
 * by phase (phases.js). Of each, they claim runs of workgroups until none is left, large runs first, so that a thread
 * whose core is busy elsewhere holds up little; and none goes on before all the workgroups are done. A thread that comes
 * late to a phase passes it by: nobody waits for a thread that has claimed nothing.
 *
 * A worker enters a step by counting itself ACTIVE and then looking whether the step is still OPEN; the step's owner
 * closes it and then waits until nobody is ACTIVE: so the list never changes under anybody's eyes.
 */
import { END, ENTRY_WORDS, GROUPS, TOTAL, runEntry } from "./cpu_commands.js";

/** @typedef {import("./cpu_commands.js").Machine} Machine */

/** Entries of one step: longer command streams are run in several. */
export const CAPACITY = 1024;

// Words of the control memory. What threads wait for stands on cache lines (16 words) of its own.
const GENERATION = 0; // counts the steps
const OPEN = 1;
const COUNT = 2; // entries of the step
const ACTIVE = 16; // workers in the step
const FINISHED = 32; // entries of which all workgroups are done
const SLEEPERS = 48; // threads that wait for it asleep
const CLAIMED = 64; // workgroups that were claimed, at the first entry of each phase
const DONE = CLAIMED + CAPACITY; // and those that are done
const ENTRIES = DONE + CAPACITY;
const WORDS = ENTRIES + CAPACITY * ENTRY_WORDS;

/** FINISHED where a kernel failed: everybody leaves. */
const FAILED = 0x7fffffff;
/** Looks before a thread goes to sleep: some tens of microseconds, as a wake-up takes. */
const SPINS = 4000;

/** Tells the processor that this is a waiting loop, where the engine has it. @type {() => void} */
const pause = /** @type {any} */ (Atomics).pause ?? (() => {});

/** @returns {SharedArrayBuffer} the control memory of a pool */
export function createControl() {
  return new SharedArrayBuffer(4 * WORDS);
}

export class Share {
  #words;
  #seen = 0;

  /** @param {SharedArrayBuffer} control @param {Machine} machine this thread's @param {number} threads of the pool */
  constructor(control, machine, threads) {
    this.#words = new Int32Array(control);
    this.machine = machine;
    this.threads = threads;
    /** Where the step's owner writes its entries. */
    this.entries = new Int32Array(control, 4 * ENTRIES, CAPACITY * ENTRY_WORDS);
  }

  /**
   * The owner's: runs the first `count` entries with everybody's help. Throws what a kernel throws.
   * @param {number} count
   */
  run(count) {
    const words = this.#words;
    words.fill(0, CLAIMED, CLAIMED + count);
    words.fill(0, DONE, DONE + count);
    words[COUNT] = count;
    Atomics.store(words, FINISHED, 0);
    Atomics.store(words, OPEN, 1);
    Atomics.add(words, GENERATION, 1);
    Atomics.notify(words, GENERATION);
    try {
      this.#work();
      if (words[FINISHED] === FAILED) throw new Error("a thread of the pool failed");
    } finally {
      Atomics.store(words, OPEN, 0);
      this.#untilIdle();
    }
  }

  /** A worker's: sleeps until there is a step, and takes part in it. */
  help() {
    const words = this.#words;
    Atomics.wait(words, GENERATION, this.#seen);
    this.#seen = Atomics.load(words, GENERATION);
    Atomics.add(words, ACTIVE, 1);
    try {
      if (Atomics.load(words, OPEN)) this.#work();
    } finally {
      if (Atomics.sub(words, ACTIVE, 1) === 1) Atomics.notify(words, ACTIVE);
    }
  }

  #work() {
    const words = this.#words;
    const { entries } = this;
    const count = words[COUNT];
    try {
      for (let first = 0, end; first < count; first = end) {
        end = entries[first * ENTRY_WORDS + END];
        if (Atomics.load(words, FINISHED) > first) continue;
        const total = entries[first * ENTRY_WORDS + TOTAL];
        const done = total === 1 ? this.#runChain(first, end) : this.#runShare(first, total);
        if (done > 0 && Atomics.add(words, DONE + first, done) + done === total) this.#finish(end);
        else this.#untilFinished(first);
      }
    } catch (error) {
      this.#finish(FAILED);
      throw error;
    }
  }

  /**
   * There is nothing to share: one thread runs them all.
   * @param {number} first
   * @param {number} end
   * @returns {number} 1 if this thread did
   */
  #runChain(first, end) {
    if (Atomics.compareExchange(this.#words, CLAIMED + first, 0, 1) !== 0) return 0;
    for (let index = first; index < end; index++) {
      const at = index * ENTRY_WORDS;
      runEntry(this.machine, this.entries, at, 0, this.entries[at + GROUPS]);
    }
    return 1;
  }

  /**
   * The workgroups of a phase are counted through, those of its first entry first.
   * @param {number} index of its first entry
   * @param {number} total
   * @returns {number} how many of them it ran
   */
  #runShare(index, total) {
    const words = this.#words;
    let done = 0;
    for (let first = Atomics.load(words, CLAIMED + index); first < total; ) {
      const last = first + Math.ceil((total - first) / (2 * this.threads));
      const seen = Atomics.compareExchange(words, CLAIMED + index, first, last);
      if (seen === first) {
        this.#runGroups(index, first, last);
        done += last - first;
        first = Atomics.load(words, CLAIMED + index);
      } else {
        first = seen;
      }
    }
    return done;
  }

  /** @param {number} index of a phase's first entry @param {number} first @param {number} last */
  #runGroups(index, first, last) {
    for (let at = index * ENTRY_WORDS, before = 0; before < last; at += ENTRY_WORDS) {
      const groups = this.entries[at + GROUPS];
      const [from, to] = [Math.max(first - before, 0), Math.min(last - before, groups)];
      if (from < to) runEntry(this.machine, this.entries, at, from, to);
      before += groups;
    }
  }

  /** @param {number} entries that are finished */
  #finish(entries) {
    Atomics.store(this.#words, FINISHED, entries);
    // A sleeper counts itself and then looks once more: one of the two sees the other.
    if (Atomics.load(this.#words, SLEEPERS) > 0) Atomics.notify(this.#words, FINISHED);
  }

  /** Waits until more than `index` entries are finished. @param {number} index */
  #untilFinished(index) {
    const words = this.#words;
    for (let spin = 0; spin < SPINS; spin++) {
      if (Atomics.load(words, FINISHED) > index) return;
      pause();
    }
    Atomics.add(words, SLEEPERS, 1);
    for (let value; (value = Atomics.load(words, FINISHED)) <= index; ) Atomics.wait(words, FINISHED, value);
    Atomics.sub(words, SLEEPERS, 1);
  }

  /** Waits until no worker is in the step. */
  #untilIdle() {
    const words = this.#words;
    for (let spin = 0; spin < SPINS; spin++) {
      if (Atomics.load(words, ACTIVE) === 0) return;
      pause();
    }
    for (let value; (value = Atomics.load(words, ACTIVE)) !== 0; ) Atomics.wait(words, ACTIVE, value);
  }
}
