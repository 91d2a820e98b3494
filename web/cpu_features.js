/** What this machine's WebAssembly can do, found by asking it to accept a tiny module: never by the browser's name. */
import { WebrelaxError } from "./errors.js";

/** A module of one function without parameters that gives a v128. @param {number[]} code */
function validates(...code) {
  const body = [0, ...code, 0x0b];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  const sections = [1, 5, 1, 0x60, 0, 1, 0x7b, 3, 2, 1, 0, 10, body.length + 2, 1, body.length];
  return WebAssembly.validate(Uint8Array.from([...header, ...sections, ...body]));
}

const ZEROS = [0x41, 0, 0xfd, 0x0f]; // i32.const 0, i8x16.splat

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
  // i32x4.relaxed_dot_i8x16_i7x16_add_s: the instruction that such a profile is built for.
  const relaxed = validates(...ZEROS, ...ZEROS, ...ZEROS, 0xfd, 0x93, 0x02);
  return new Set(relaxed ? ["relaxed-simd"] : []);
}

/** Whether there is WebAssembly with 128-bit SIMD. */
export function canCompute() {
  return typeof WebAssembly === "object" && validates(...ZEROS);
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
