/** The target "wasm": kernels of WebAssembly, weights placed once in the memory that they compute on. */
import { CPU, CPUBackend } from "./cpu_backend.js";
import { cpuFeatures } from "./cpu_features.js";
import { createMemory, planMemory } from "./cpu_memory.js";
import { instantiate, memoryImport, withSharedMemory } from "./cpu_module.js";
import { chooseProfile } from "./device.js";
import { WebrelaxError, messageOf } from "./errors.js";
import { Phases } from "./phases.js";
import { Pool } from "./pool.js";
import { streamWeights } from "./weights.js";

/**
 * @param {{profile: string | null, threads: number, startWorker: import("./pool.js").StartWorker}} options more than
 *   one thread only where memory can be shared between threads
 * @returns {import("./load.js").Driver<CPU>}
 */
export function wasmDriver({ profile, threads, startWorker }) {
  return {
    open: async (manifest) => new CPU(chooseProfile(manifest, cpuFeatures(), profile, "browser"), threads),
    async prepare(cpu, manifest, loader, { onCompiled }) {
      onCompiled(0, 1);
      const name = manifest.profiles[cpu.profile].kernels;
      const module = await compile(name, await loader.file(name), threads > 1);
      onCompiled(1, 1);
      const layout = planMemory(manifest, module, threads);
      const memory = createMemory(manifest, layout, threads > 1);
      const { functions } = instantiate(module.compiled, memory, layout.stacks[0]);
      const backend = new CPUBackend(cpu, manifest, layout, memory, functions);
      const hire = async () => {
        if (threads === 1) return;
        const phases = new Phases(manifest, layout);
        cpu.pool = await Pool.start(module.compiled, memory, phases, backend.machine, startWorker);
      };
      const place = streamWeights(manifest, loader, async (bytes, parts) => backend.writeWeights(bytes, parts));
      await Promise.all([hire(), place]);
      return backend;
    },
  };
}

/** @param {string} name for messages @param {Uint8Array<ArrayBuffer>} bytes @param {boolean} shared */
async function compile(name, bytes, shared) {
  const source = shared ? withSharedMemory(bytes) : bytes;
  try {
    const compiled = await WebAssembly.compile(source);
    // What the module leaves free, only an instance tells; this one is for nothing else.
    const { minimum } = memoryImport(source);
    const memory = new WebAssembly.Memory({ initial: minimum, maximum: minimum, shared });
    const { heapBase } = instantiate(compiled, memory, 0);
    return { compiled, heapBase, minimum };
  } catch (error) {
    if (error instanceof WebrelaxError) throw error;
    throw new WebrelaxError(
      "kernel",
      `${name} does not compile in this browser (${messageOf(error)}): please report this.`,
      { cause: error },
    );
  }
}
