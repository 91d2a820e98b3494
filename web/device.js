/** The GPU device: probed by features and limits, never by the browser's name, and watched for loss and errors. */
import { WebrelaxError, formatBytes } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {{vendor: string, architecture: string, description: string, isFallbackAdapter: boolean}} DeviceInfo
 */

/** WebGPU's default limits: more is asked for only where the bundle needs more. */
const DEFAULT_LIMITS = /** @type {const} */ ({
  maxBufferSize: 268435456,
  maxStorageBufferBindingSize: 134217728,
});

/** A device, the profile chosen for it, and the first failure seen on it. */
export class Device {
  /** @type {WebrelaxError | null} */
  failure = null;
  /** @type {(error: WebrelaxError) => void} */
  #fail = () => {};
  target = /** @type {const} */ ("webgpu");
  /** Threads that compute on the CPU. */
  threads = 0;

  /** @param {GPUDevice} gpu @param {string} profile @param {DeviceInfo} info */
  constructor(gpu, profile, info) {
    this.gpu = gpu;
    this.profile = profile;
    this.info = info;
    /** @type {Promise<WebrelaxError>} settles at the first failure; never after dispose() */
    this.failed = new Promise((resolve) => (this.#fail = resolve));
    gpu.addEventListener("uncapturederror", (event) => {
      const { error } = /** @type {GPUUncapturedErrorEvent} */ (event);
      const outOfMemory = typeof GPUOutOfMemoryError !== "undefined" && error instanceof GPUOutOfMemoryError;
      this.#report(
        outOfMemory
          ? new WebrelaxError(
              "out-of-memory",
              "The GPU ran out of memory: close other tabs, then load the model again.",
            )
          : new WebrelaxError("device", `The GPU refused a command (${error.message.trim()}): please report this.`),
      );
    });
    gpu.lost.then(({ reason, message }) => {
      if (reason === "destroyed") return;
      this.#report(
        new WebrelaxError(
          "device-lost",
          `The GPU was lost${message ? ` (${message.trim().replace(/\.$/, "")})` : ""}: load the model again to go on.`,
        ),
      );
    });
  }

  /** @param {WebrelaxError} error */
  #report(error) {
    if (this.failure) return;
    this.failure = error;
    this.#fail(error);
  }

  /** Throws the first failure seen, if there is one. */
  check() {
    if (this.failure) throw this.failure;
  }

  /**
   * Runs `work` and turns memory and validation errors inside it into a WebrelaxError.
   * @template T
   * @param {string} what is being allocated, for the message
   * @param {() => T} work
   * @returns {Promise<T>}
   */
  async guarded(what, work) {
    this.gpu.pushErrorScope("validation");
    this.gpu.pushErrorScope("out-of-memory");
    const result = work();
    const [memory, invalid] = await Promise.all([this.gpu.popErrorScope(), this.gpu.popErrorScope()]);
    this.check();
    if (memory) {
      throw new WebrelaxError(
        "out-of-memory",
        `The GPU has not enough memory for ${what}: close other tabs, or choose a smaller model.`,
      );
    }
    if (invalid) throw new WebrelaxError("device", `The GPU refused ${what}: ${invalid.message.trim()}`);
    return result;
  }

  destroy() {
    this.gpu.destroy();
  }
}

/**
 * Opens a device that can run the bundle.
 * @param {Manifest} manifest
 * @param {{gpu?: GPU, profile?: string | null}} [options] `profile` overrides the choice by features
 * @returns {Promise<Device>}
 */
export async function openDevice(manifest, { gpu = globalThis.navigator?.gpu, profile = null } = {}) {
  if (!gpu) {
    throw new WebrelaxError(
      "no-webgpu",
      globalThis.isSecureContext === false
        ? "WebGPU works on secure pages only: open this page over https or on localhost."
        : "This browser has no WebGPU: use a recent Chrome, Edge, Firefox or Safari, or turn it on.",
    );
  }
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" }).catch(() => null);
  if (!adapter) {
    throw new WebrelaxError(
      "no-adapter",
      "This browser has WebGPU but found no usable GPU: update the graphics driver, or turn on hardware acceleration.",
    );
  }
  const chosen = chooseProfile(manifest, adapter.features, profile);
  const features = /** @type {GPUFeatureName[]} */ (manifest.profiles[chosen].features);
  const requiredLimits = neededLimits(manifest, adapter.limits);
  let device;
  try {
    device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits });
  } catch (error) {
    throw new WebrelaxError("no-adapter", "The GPU did not open: close other tabs that use it, then retry.", {
      cause: error,
    });
  }
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
  return new Device(device, chosen, {
    vendor,
    architecture,
    description,
    isFallbackAdapter: isFallbackAdapter ?? false,
  });
}

/**
 * The profile with the most features that the adapter has; ties go to the first in the manifest.
 * @param {Manifest} manifest
 * @param {ReadonlySet<string>} features
 * @param {string | null} wanted
 * @param {string} [device] that has them, for the message
 * @returns {string}
 */
export function chooseProfile(manifest, features, wanted, device = "GPU") {
  const names = Object.keys(manifest.profiles);
  if (wanted !== null && !names.includes(wanted)) {
    throw new WebrelaxError("options", `The model has no profile "${wanted}": choose one of ${names.join(", ")}.`);
  }
  const missing = (/** @type {string} */ name) => manifest.profiles[name].features.filter((f) => !features.has(f));
  const fitting = (wanted === null ? names : [wanted]).filter((name) => missing(name).length === 0);
  if (fitting.length === 0) {
    const lacks = [...new Set((wanted === null ? names : [wanted]).flatMap(missing))];
    throw new WebrelaxError(
      "limits",
      `This ${device} lacks ${lacks.join(" and ")}, which every fitting build of the model needs: ` +
        "use another device, or build the site with a profile that needs no features.",
    );
  }
  const count = (/** @type {string} */ name) => manifest.profiles[name].features.length;
  return fitting.reduce((best, name) => (count(name) > count(best) ? name : best));
}

/**
 * @param {Manifest} manifest
 * @param {Record<keyof typeof DEFAULT_LIMITS, number>} offered the adapter's limits
 * @returns {Record<string, number>} the limits to ask for: those above WebGPU's defaults
 */
export function neededLimits(manifest, offered) {
  const needed = {
    maxBufferSize: Math.max(0, ...manifest.buffers.map((buffer) => buffer.size)),
    maxStorageBufferBindingSize: manifest.binding_sets.flat().reduce((most, [, , size]) => Math.max(most, size), 0),
  };
  /** @type {Record<string, number>} */
  const required = {};
  for (const name of /** @type {(keyof typeof DEFAULT_LIMITS)[]} */ (Object.keys(DEFAULT_LIMITS))) {
    if (needed[name] > offered[name]) {
      throw new WebrelaxError(
        "limits",
        `The model needs ${name} = ${needed[name]} (${formatBytes(needed[name])}) but this GPU offers ` +
          `${offered[name]}: use another device or a smaller model.`,
      );
    }
    if (needed[name] > DEFAULT_LIMITS[name]) required[name] = needed[name];
  }
  return required;
}
