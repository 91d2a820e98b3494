/**
 * The one error type of the run time: a code for programs, a sentence for people.
 *
 * @typedef {"no-webgpu" | "no-adapter" | "limits" | "out-of-memory" | "device-lost" | "device" | "kernel"
 *   | "damaged-file" | "missing-file" | "network" | "format"
 *   | "options" | "context" | "busy" | "aborted" | "disposed"} ErrorCode
 */

/** A problem the reader can act on: what is wrong, where, and what to do. */
export class WebrelaxError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message one sentence
   * @param {{cause?: unknown}} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = "WebrelaxError";
    this.code = code;
  }
}

/**
 * Throws the "aborted" error once the signal has fired.
 * @param {AbortSignal | null | undefined} signal
 */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw abortedError();
}

export function abortedError() {
  return new WebrelaxError("aborted", "The request was stopped before it was finished.");
}

/**
 * @param {unknown} error
 * @returns {string} a message, never "[object Object]"
 */
export function messageOf(error) {
  if (error instanceof Error && error.message) return error.message;
  return typeof error === "string" && error ? error : "An unknown error occurred.";
}

/** @param {number} bytes @returns {string} such as "1.2 MB" */
export function formatBytes(bytes) {
  if (bytes < 1e6) return `${Math.ceil(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}
