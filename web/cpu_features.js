/** What this machine's WebAssembly can do, found by asking it to accept a tiny module: never by the browser's name. */
import { WebrelaxError } from "./errors.js";

/** A module of one function f without parameters, of this result. @param {number} result @param {number[]} code */
function moduleOf(result, ...code) {
  const body = [0, ...code, 0x0b];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const signature = [1, 5, 1, 0x60, 0, 1, result, 3, 2, 1, 0, 7, 5, 1, 1, 0x66, 0, 0];
  return Uint8Array.from([...header, ...signature, 10, body.length + 2, 1, body.length, ...body]);
}

const [I32, V128] = [0x7f, 0x7b];
/** i32.const, i8x16.splat @param {number} value 0 to 63 */
const splat = (value) => [0x41, value, 0xfd, 0x0f];
const SIMD = moduleOf(V128, ...splat(0));
/** The first lane of i32x4.relaxed_dot_i8x16_i7x16_add_s: the instruction that the profile is built for. */
const RELAXED = moduleOf(I32, ...splat(5), ...splat(3), 0x41, 7, 0xfd, 0x11, 0xfd, 0x93, 0x02, 0xfd, 0x1b, 0);

/**
 * @returns {Set<string>} "relaxed-simd" where there is relaxed SIMD
 *   Throws a WebrelaxError where there is no 128-bit SIMD, without which no profile runs.
 */
export function cpuFeatures() {
  if (!canCompute()) {
    throw new WebrelaxError(
      "limits",
      "This browser's WebAssembly has no 128-bit SIMD, which the model needs on the CPU: use a recent browser.",
    );
  }
  return new Set(hasRelaxedDot() ? ["relaxed-simd"] : []);
}

/** It is run as well: V8 11.3, which has it behind a flag (Node 20), takes it and computes it wrongly. */
function hasRelaxedDot() {
  if (!WebAssembly.validate(RELAXED)) return false;
  const { f } = new WebAssembly.Instance(new WebAssembly.Module(RELAXED)).exports;
  return /** @type {() => number} */ (f)() === 4 * 5 * 3 + 7;
}

/** Whether there is WebAssembly with 128-bit SIMD. */
export function canCompute() {
  return typeof WebAssembly === "object" && WebAssembly.validate(SIMD);
}

/**
 * @param {number | null} wanted what the caller asks for
 * @param {number} cores logical ones
 * @param {boolean} shared whether threads may share memory: where not, there is one thread
 * @returns {number} threads that compute
 */
export function chooseThreads(wanted, cores, shared) {
  const most = 64;
  if (wanted !== null && !(Number.isInteger(wanted) && wanted >= 1 && wanted <= most)) {
    throw new WebrelaxError("options", `threads must be a whole number from 1 to ${most}, but is ${wanted}.`);
  }
  if (!shared) return 1;
  // Half of many: the logical cores are two to a real one there, or some of them are slow.
  return wanted ?? Math.max(1, Math.min(8, cores <= 4 ? cores : Math.floor(cores / 2)));
}
