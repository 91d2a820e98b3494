import assert from "node:assert/strict";
import test from "node:test";
import { FORMAT, filesOf, forTarget, readManifest, targetsOf } from "../../web/manifest.js";

const PARTS = [
  { file: "weights-001.bin", offset: 0, size: 4, at: 4 },
  { file: "weights-000.bin", offset: 8, size: 4, at: 0 },
];

/** A bundle for these targets; `change` gets it, to damage it. */
function bundle(change = () => {}, targets = ["webgpu", "wasm"]) {
  const target = (name) => ({
    profiles: { p: { features: [], kernels: `${name}.kernels`, module: `${name}.bin` } },
    buffers: [
      { name: `only ${name}`, kind: "storage", size: 16 },
      { name: "w", kind: "weight", size: 8 },
    ],
    binding_sets: [],
    table: { row_bytes: 256, used_bytes: 16, rows: 1 },
    functions: { prefill: {}, decode: {} },
    memory: {},
  });
  const made = {
    format: FORMAT,
    webrelax: "0",
    name: "m",
    model: { context: 8 },
    files: { "tokenizer.json": { size: 1, sha256: "" } },
    weights: { w: { size: 8, parts: PARTS } },
    targets: Object.fromEntries(targets.map((name) => [name, target(name)])),
  };
  change(made);
  return made;
}

test("a target's view has its own sections, and the weights' parts", () => {
  const read = readManifest(bundle(), "m");
  assert.deepEqual(targetsOf(read), ["webgpu", "wasm"]);
  for (const name of targetsOf(read)) {
    const manifest = forTarget(read, name);
    assert.equal(manifest.name, "m");
    assert.deepEqual(manifest.buffers, [
      { name: `only ${name}`, kind: "storage", size: 16 },
      { name: "w", kind: "weight", size: 8, parts: PARTS },
    ]);
    assert.ok(!("targets" in manifest) && !("weights" in manifest));
    assert.deepEqual(filesOf(manifest, "p"), {
      small: [`${name}.kernels`, `${name}.bin`, "tokenizer.json"],
      shards: ["weights-000.bin", "weights-001.bin"],
    });
  }
  assert.equal(read.targets.wasm.buffers[1].parts, undefined);
});

test("either target may be absent", () => {
  for (const name of ["webgpu", "wasm"])
    assert.deepEqual(targetsOf(readManifest(bundle(undefined, [name]), "m")), [name]);
});

for (const [what, change, message] of [
  ["no target", (m) => (m.targets = {}), /lacks a target that this page knows \(webgpu, wasm\)/],
  ["an unknown target only", (m) => (m.targets = { cuda: {} }), /lacks a target/],
  ["no weights", (m) => delete m.weights, /lacks its "weights" section/],
  ["a target without buffers", (m) => delete m.targets.wasm.buffers, /the "buffers" section of target "wasm"/],
  ["no decode", (m) => delete m.targets.webgpu.functions.decode, /a function "decode" in target "webgpu"/],
  ["a weight that is nowhere", (m) => delete m.weights.w, /a weight "w" of the 8 bytes that target "webgpu" has/],
  ["a weight of another size", (m) => (m.weights.w.size = 12), /a weight "w" of the 8 bytes/],
]) {
  test(`a manifest with ${what} is refused`, () => {
    assert.throws(() => readManifest(bundle(change), "/m.json"), { code: "format", message });
  });
}
