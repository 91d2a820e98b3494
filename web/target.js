/** Which target a page runs: the GPU where there is a real one, else the CPU. */
import { canCompute } from "./cpu_features.js";
import { WebrelaxError } from "./errors.js";
import { TARGETS, targetsOf } from "./manifest.js";

/**
 * @typedef {import("./manifest.js").Bundle} Bundle
 * @typedef {import("./manifest.js").TargetName} TargetName
 * @typedef {Partial<import("./device.js").DeviceInfo> & {device?: string}} AdapterInfo
 */

const SOFTWARE = /swiftshader|llvmpipe|lavapipe|microsoft basic render/i;

/** Whether an adapter only plays a GPU, on the CPU: slower than the CPU's own kernels. @param {AdapterInfo} info */
export function isSoftware({ isFallbackAdapter, vendor, architecture, device, description }) {
  return isFallbackAdapter === true || SOFTWARE.test([vendor, architecture, device, description].join(" "));
}

/**
 * @param {Bundle} bundle
 * @param {string | null} wanted overrides the choice
 * @param {GPU | undefined} [gpu]
 * @returns {Promise<TargetName>}
 */
export async function chooseTarget(bundle, wanted, gpu = globalThis.navigator?.gpu) {
  const built = targetsOf(bundle);
  if (wanted !== null) {
    const found = built.find((name) => name === wanted);
    if (found) return found;
    const known = TARGETS.some((name) => name === wanted);
    throw new WebrelaxError(
      "options",
      `The model ${known ? "was not built for" : "knows no"} target "${wanted}": choose one of ${built.join(", ")}.`,
    );
  }
  if (built.length === 1) return built[0];
  const adapter = await gpu?.requestAdapter({ powerPreference: "high-performance" }).catch(() => null);
  if (adapter && !isSoftware(adapter.info)) return "webgpu";
  return canCompute() ? "wasm" : "webgpu";
}
