/** Carries out steps on the CPU: kernels of WebAssembly over one memory, by one thread or a pool of them. */
import { breathe } from "./breathe.js";
import { ENTRY_WORDS, GROUPS, Resolver, runEntry } from "./cpu_commands.js";
import { WebrelaxError, messageOf } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Part} Part
 * @typedef {import("./cpu_memory.js").Layout} Layout
 * @typedef {import("./cpu_module.js").Kernel} Kernel
 * @typedef {import("./executor.js").Range} Range
 * @typedef {import("./executor.js").Step} Step
 * @typedef {import("./executor.js").Backend} Backend
 */

/** The CPU, as an engine's device: what it is called, and the first failure seen on it. */
export class CPU {
  /** @type {WebrelaxError | null} */
  failure = null;
  /** @type {(error: WebrelaxError) => void} */
  #fail = () => {};
  /** @type {import("./pool.js").Pool | null} */
  pool = null;
  target = /** @type {const} */ ("wasm");
  info = { vendor: "", architecture: "", description: "CPU", isFallbackAdapter: false };

  /** @param {string} profile @param {number} threads */
  constructor(profile, threads) {
    this.profile = profile;
    this.threads = threads;
    /** @type {Promise<WebrelaxError>} settles at the first failure */
    this.failed = new Promise((resolve) => (this.#fail = resolve));
  }

  /** @param {unknown} error what a kernel threw @returns {WebrelaxError} */
  report(error) {
    this.failure ??= new WebrelaxError(
      "device",
      `A kernel failed on the CPU (${messageOf(error)}): load the model again, and please report this.`,
      { cause: error },
    );
    this.#fail(this.failure);
    return this.failure;
  }

  /** Throws the first failure seen, if there is one. */
  check() {
    if (this.failure) throw this.failure;
  }

  destroy() {
    this.pool?.dispose();
  }
}

/** @implements {Backend} */
export class CPUBackend {
  #resolver;
  #entries = new Int32Array(1024 * ENTRY_WORDS);
  #result = new Uint8Array();

  /**
   * @param {CPU} cpu
   * @param {Manifest} manifest
   * @param {Layout} layout
   * @param {WebAssembly.Memory} memory of that layout
   * @param {Kernel[]} functions this thread's, over the memory
   */
  constructor(cpu, manifest, layout, memory, functions) {
    this.cpu = cpu;
    this.layout = layout;
    this.memory = memory;
    this.#resolver = new Resolver(manifest, layout);
    this.machine = { functions, bytes: new Uint8Array(memory.buffer) };
  }

  check() {
    this.cpu.check();
  }

  /** @param {number} buffer @param {number} offset @param {Int32Array} data */
  write(buffer, offset, data) {
    const address = this.#resolver.place(buffer, offset, data.byteLength);
    new Int32Array(this.memory.buffer, address, data.length).set(data);
  }

  /**
   * Copies the pieces of a shard to where they belong.
   * @param {Uint8Array} bytes
   * @param {(Part & {buffer: number})[]} parts
   */
  writeWeights(bytes, parts) {
    for (const { buffer, offset, size, at } of parts)
      this.machine.bytes.set(bytes.subarray(offset, offset + size), this.#resolver.place(buffer, at, size));
  }

  /**
   * Blocks its thread while it computes; then lets it hear what came meanwhile.
   * @param {Step} step
   * @param {Range | null} read
   */
  async run({ commands, table }, read) {
    new Int32Array(this.memory.buffer, this.layout.table, table.length).set(table);
    try {
      if (this.cpu.pool) this.cpu.pool.run(this.#resolver, commands);
      else this.#runAlone(commands);
    } catch (error) {
      throw error instanceof WebrelaxError ? error : this.cpu.report(error);
    }
    const result = read && this.#read(read);
    await breathe();
    return result;
  }

  async idle() {}

  /** @param {Uint32Array} commands */
  #runAlone(commands) {
    const entries = this.#entries;
    for (let at = 0; at !== -1; ) {
      const { count, next } = this.#resolver.resolve(commands, at, entries);
      for (let entry = 0; entry < count * ENTRY_WORDS; entry += ENTRY_WORDS)
        runEntry(this.machine, entries, entry, 0, entries[entry + GROUPS]);
      at = next;
    }
  }

  /** @param {Range} range @returns {ArrayBuffer} a copy, never shared; the next one of that size takes its place */
  #read({ buffer, offset, bytes }) {
    const address = this.#resolver.place(buffer, offset, bytes);
    if (this.#result.length !== bytes) this.#result = new Uint8Array(bytes);
    this.#result.set(this.machine.bytes.subarray(address, address + bytes));
    return this.#result.buffer;
  }
}
