/** Kernels to pipelines, compiled without blocking the page, with layouts shared by pattern of access. */
import { WebrelaxError, messageOf, throwIfAborted } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Kernel} Kernel
 * @typedef {import("./device.js").Device} Device
 */

/** Pipelines compiled at a time: enough to keep the browser's compiler threads busy. */
const COMPILING_AT_ONCE = 8;

/** The compiled kernels of a profile, and the layouts that they share. */
export class Pipelines {
  /** @type {GPUBindGroupLayout[]} one for each pattern of access modes */
  layouts = [];
  /** @type {Map<string, number>} */
  #byAccess = new Map();
  /** @type {GPUComputePipeline[]} */
  #pipelines = [];
  /** @type {number[]} */
  #layoutOf = [];

  /**
   * Compiles every kernel without blocking the page.
   * @param {Device} device
   * @param {Kernel[]} kernels
   * @param {{usedBytes: number, signal?: AbortSignal | null,
   *   onCompiled?: (done: number, total: number) => void}} options `usedBytes` of a row of the symbol table
   */
  static async compile(device, kernels, { usedBytes, signal = null, onCompiled = () => {} }) {
    const pipelines = new Pipelines();
    pipelines.#layoutOf = kernels.map(({ access }) => pipelines.#layout(device.gpu, access, usedBytes));
    const gpuLayouts = pipelines.layouts.map((layout) =>
      device.gpu.createPipelineLayout({ bindGroupLayouts: [layout] }),
    );
    let next = 0;
    let done = 0;
    const work = async () => {
      while (next < kernels.length) {
        throwIfAborted(signal);
        const index = next++;
        pipelines.#pipelines[index] = await compileKernel(
          device,
          kernels[index],
          gpuLayouts[pipelines.#layoutOf[index]],
        );
        onCompiled(++done, kernels.length);
      }
    };
    await Promise.all(Array.from({ length: COMPILING_AT_ONCE }, work));
    return pipelines;
  }

  /** @param {number} kernel */
  of(kernel) {
    return this.#pipelines[kernel];
  }

  /** @param {number} kernel @returns {number} index into `layouts` */
  layoutOf(kernel) {
    return this.#layoutOf[kernel];
  }

  /** @param {GPUDevice} gpu @param {string[]} access @param {number} usedBytes */
  #layout(gpu, access, usedBytes) {
    const key = access.join();
    const known = this.#byAccess.get(key);
    if (known !== undefined) return known;
    const visibility = GPUShaderStage.COMPUTE;
    /** @type {GPUBindGroupLayoutEntry[]} */
    const entries = [
      { binding: 0, visibility, buffer: { type: "uniform", hasDynamicOffset: true, minBindingSize: usedBytes } },
    ];
    access.forEach((mode, index) => {
      const type = mode === "read" ? "read-only-storage" : "storage";
      entries.push({ binding: index + 1, visibility, buffer: { type } });
    });
    const index = this.layouts.push(gpu.createBindGroupLayout({ label: key, entries })) - 1;
    this.#byAccess.set(key, index);
    return index;
  }
}

/** @param {Device} device @param {Kernel} kernel @param {GPUPipelineLayout} layout */
async function compileKernel({ gpu }, { name, entry, wgsl }, layout) {
  gpu.pushErrorScope("validation"); // the failing pipeline tells too: this only keeps the error from being uncaptured
  const module = gpu.createShaderModule({ label: name, code: wgsl });
  gpu.popErrorScope().catch(() => {}); // a device that is lost meanwhile tells so itself
  try {
    return await gpu.createComputePipelineAsync({ label: name, layout, compute: { module, entryPoint: entry } });
  } catch (error) {
    const { messages } = await module.getCompilationInfo();
    const first = messages.find(({ type }) => type === "error");
    const detail = first ? `line ${first.lineNum}: ${first.message}` : messageOf(error);
    throw new WebrelaxError(
      "kernel",
      `Kernel "${name}" does not compile on this GPU (${detail}): please report this.`,
      {
        cause: error,
      },
    );
  }
}
