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
 * @typedef {"webgpu" | "wasm"} TargetName
 * @typedef {{
 *   profiles: Record<string, Profile>, buffers: BufferEntry[], binding_sets: Binding[][],
 *   table: {row_bytes: number, used_bytes: number, rows: number}, functions: Record<string, FunctionEntry>,
 *   memory: Record<string, number>, writes?: number[][]}} Target what is compiled for one of them
 * @typedef {{
 *   format: number, webrelax: string, name: string,
 *   model: {architecture: string, context: number, prefill_chunk: number, vocab: number},
 *   files: Record<string, FileEntry>}} Common
 * @typedef {Common & {weights: Record<string, {size: number, parts: Part[]}>,
 *   targets: Partial<Record<TargetName, Target>>}} Bundle manifest.json as it stands
 * @typedef {Common & Target} Manifest what one target reads of it: weight buffers have their parts
 */
import { WebrelaxError } from "./errors.js";

export const FORMAT = 3;
/** @type {readonly TargetName[]} */
export const TARGETS = ["webgpu", "wasm"];
const SECTIONS = /** @type {const} */ (["model", "files", "weights", "targets"]);
const TARGET_SECTIONS = /** @type {const} */ ([
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
 * @returns {Bundle}
 */
export function readManifest(value, where) {
  const bundle = /** @type {Bundle} */ (value);
  if (!isObject(bundle) || typeof bundle.format !== "number") {
    throw new WebrelaxError("format", `${where} is not a webrelax manifest: build the site again.`);
  }
  if (bundle.format !== FORMAT) {
    throw new WebrelaxError(
      "format",
      `${where} has bundle format ${bundle.format} but this page reads format ${FORMAT}: ` +
        "build the site again so that model and page come from one version.",
    );
  }
  for (const section of SECTIONS) {
    if (!isObject(bundle[section])) throw lacks(where, `its "${section}" section`);
  }
  const names = targetsOf(bundle);
  if (names.length === 0) throw lacks(where, `a target that this page knows (${TARGETS.join(", ")})`);
  for (const name of names) checkTarget(bundle, name, where);
  return bundle;
}

/** @param {Bundle} bundle @param {TargetName} name @param {string} where */
function checkTarget(bundle, name, where) {
  const target = /** @type {Target} */ (bundle.targets[name]);
  for (const section of TARGET_SECTIONS) {
    if (!isObject(target[section])) throw lacks(where, `the "${section}" section of target "${name}"`);
  }
  for (const step of ["prefill", "decode"]) {
    if (!target.functions[step]) throw lacks(where, `a function "${step}" in target "${name}"`);
  }
  for (const buffer of target.buffers) {
    if (buffer.kind === "weight" && bundle.weights[buffer.name]?.size !== buffer.size) {
      throw lacks(where, `a weight "${buffer.name}" of the ${buffer.size} bytes that target "${name}" has for it`);
    }
  }
}

/** @param {unknown} value */
function isObject(value) {
  return typeof value === "object" && value !== null;
}

/** @param {string} where @param {string} what */
function lacks(where, what) {
  return new WebrelaxError("format", `${where} lacks ${what}: build the site again.`);
}

/** @param {Bundle} bundle @returns {TargetName[]} those that the model was built for */
export function targetsOf(bundle) {
  return TARGETS.filter((name) => isObject(bundle.targets[name]));
}

/**
 * What one target reads.
 * @param {Bundle} bundle
 * @param {TargetName} name one that the bundle has
 * @returns {Manifest}
 */
export function forTarget(bundle, name) {
  const { weights, targets, ...common } = bundle;
  const target = /** @type {Target} */ (targets[name]);
  const buffers = target.buffers.map((buffer) =>
    buffer.kind === "weight" ? { ...buffer, parts: weights[buffer.name].parts } : buffer,
  );
  return { ...common, ...target, buffers };
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
