/**
 * The types of manifest.json and kernels-PROFILE.json (docs/bundle-format.md) and their reader.
 *
 * @typedef {{size: number, sha256: string}} FileEntry
 * @typedef {{features: string[], kernels: string, module: string}} Profile
 * @typedef {"storage" | "state" | "input" | "output" | "weight"} BufferKind
 * @typedef {{file: string, offset: number, size: number, at: number}} Part a piece of a weight, in bytes
 * @typedef {{name: string, kind: BufferKind, size: number, parts?: Part[]}} BufferEntry
 * @typedef {[buffer: number, offset: number, size: number]} Binding
 * @typedef {{name: string, dtype?: string, shape: (number | string)[], buffer?: number, offset?: number}} Argument
 * @typedef {{name: string, dtype: string, shape: (number | string)[], buffer: number, offset: number}} Result
 * @typedef {{index: number, arguments: Argument[], results: Result[],
 *   variables: Record<string, [lower: number, upper: number]>, slots: string[], captured: boolean}} FunctionEntry
 * @typedef {{name: string, entry: string, wgsl: string, workgroup: number[], access: string[]}} Kernel
 * @typedef {{
 *   format: number, webrelax: string, name: string,
 *   model: {architecture: string, context: number, prefill_chunk: number, vocab: number},
 *   files: Record<string, FileEntry>, profiles: Record<string, Profile>, buffers: BufferEntry[],
 *   binding_sets: Binding[][], table: {row_bytes: number, used_bytes: number, rows: number},
 *   functions: Record<string, FunctionEntry>, memory: Record<string, number>}} Manifest
 */
import { WebrelaxError } from "./errors.js";

export const FORMAT = 2;
const SECTIONS = /** @type {const} */ ([
  "model",
  "files",
  "profiles",
  "buffers",
  "binding_sets",
  "table",
  "functions",
  "memory",
]);

/**
 * Checks what the reader relies on; the build has checked the rest.
 * @param {unknown} value the parsed JSON
 * @param {string} where its address, for messages
 * @returns {Manifest}
 */
export function readManifest(value, where) {
  const manifest = /** @type {Manifest} */ (value);
  if (typeof manifest !== "object" || manifest === null || typeof manifest.format !== "number") {
    throw new WebrelaxError("format", `${where} is not a webrelax manifest: build the site again.`);
  }
  if (manifest.format !== FORMAT) {
    throw new WebrelaxError(
      "format",
      `${where} has bundle format ${manifest.format} but this page reads format ${FORMAT}: ` +
        "build the site again so that model and page come from one version.",
    );
  }
  for (const section of SECTIONS) {
    if (typeof manifest[section] !== "object" || manifest[section] === null) {
      throw new WebrelaxError("format", `${where} lacks its "${section}" section: build the site again.`);
    }
  }
  for (const name of ["prefill", "decode"]) {
    if (!manifest.functions[name]) {
      throw new WebrelaxError("format", `${where} has no function "${name}": build the site again.`);
    }
  }
  return manifest;
}

/**
 * The files that one profile needs, in the order in which they are used: small ones, then weight shards.
 * @param {Manifest} manifest
 * @param {string} profile
 * @returns {{small: string[], shards: string[]}}
 */
export function filesOf(manifest, profile) {
  const { kernels, module } = manifest.profiles[profile];
  const shards = new Set(manifest.buffers.flatMap((buffer) => (buffer.parts ?? []).map((part) => part.file)));
  const tokenizer = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"];
  const small = [kernels, module, ...tokenizer.filter((name) => name in manifest.files)];
  return { small, shards: [...shards].sort() };
}
