import assert from "node:assert/strict";
import test from "node:test";
import { canCompute, chooseThreads, cpuFeatures } from "../../web/cpu_features.js";
import { chooseTarget, isSoftware } from "../../web/target.js";

const BOTH = { targets: { webgpu: {}, wasm: {} } };
const gpuWith = (info) => ({ requestAdapter: async () => info && { info } });
const REAL = { vendor: "nvidia", architecture: "hopper", device: "", description: "", isFallbackAdapter: false };

test("adapters that compute on the CPU are told from GPUs", () => {
  assert.ok(!isSoftware(REAL));
  assert.ok(!isSoftware({ vendor: "apple", architecture: "metal-3" }));
  assert.ok(isSoftware({ ...REAL, isFallbackAdapter: true }));
  assert.ok(isSoftware({ vendor: "google", architecture: "swiftshader" }));
  assert.ok(isSoftware({ vendor: "mesa", description: "llvmpipe (LLVM 15.0.6, 256 bits)" }));
  assert.ok(isSoftware({ description: "Lavapipe" }));
  assert.ok(isSoftware({ vendor: "microsoft", device: "Microsoft Basic Render Driver" }));
});

test("a real GPU is used, else the CPU", async () => {
  assert.equal(await chooseTarget(BOTH, null, gpuWith(REAL)), "webgpu");
  assert.equal(await chooseTarget(BOTH, null, gpuWith({ ...REAL, architecture: "swiftshader" })), "wasm");
  assert.equal(await chooseTarget(BOTH, null, gpuWith(null)), "wasm");
  assert.equal(await chooseTarget(BOTH, null, undefined), "wasm");
  const failing = { requestAdapter: async () => Promise.reject(new Error("x")) };
  assert.equal(await chooseTarget(BOTH, null, failing), "wasm");
});

test("the caller's choice comes first, where the model was built for it", async () => {
  assert.equal(await chooseTarget(BOTH, "webgpu", undefined), "webgpu");
  assert.equal(await chooseTarget(BOTH, "wasm", gpuWith(REAL)), "wasm");
  await assert.rejects(chooseTarget({ targets: { webgpu: {} } }, "wasm"), {
    code: "options",
    message: 'The model was not built for target "wasm": choose one of webgpu.',
  });
  await assert.rejects(chooseTarget(BOTH, "cuda"), { code: "options", message: /knows no target "cuda"/ });
});

test("a single target is used whatever there is", async () => {
  assert.equal(await chooseTarget({ targets: { webgpu: {} } }, null, undefined), "webgpu");
  assert.equal(await chooseTarget({ targets: { wasm: {} } }, null, gpuWith(REAL)), "wasm");
});

test("without SIMD the CPU is no choice, and says why where it is the only one", async (t) => {
  t.mock.method(WebAssembly, "validate", () => false);
  assert.equal(canCompute(), false);
  assert.equal(await chooseTarget(BOTH, null, gpuWith(null)), "webgpu");
  assert.throws(() => cpuFeatures(), { code: "limits", message: /no 128-bit SIMD/ });
});

test("relaxed SIMD is a feature where it is known and computes what it should", (t) => {
  const simdOnly = (bytes) => !bytes.includes(0x93); // an opcode with that byte is in the other module alone
  const validate = t.mock.method(WebAssembly, "validate", simdOnly);
  assert.deepEqual([...cpuFeatures()], []);
  validate.mock.mockImplementation(() => true);
  let value = 67;
  t.mock.method(WebAssembly, "Module", function () {});
  t.mock.method(WebAssembly, "Instance", function () {
    return { exports: { f: () => value } };
  });
  assert.deepEqual([...cpuFeatures()], ["relaxed-simd"]);
  value = 120;
  assert.deepEqual([...cpuFeatures()], []);
});

test("threads: all cores of few, half of many, at most eight; one where memory cannot be shared", () => {
  const found = [1, 2, 3, 4, 5, 6, 8, 12, 16, 64].map((cores) => chooseThreads(null, cores, true));
  assert.deepEqual(found, [1, 2, 3, 4, 2, 3, 4, 6, 8, 8]);
  assert.equal(chooseThreads(5, 2, true), 5);
  assert.equal(chooseThreads(5, 8, false), 1);
  assert.equal(chooseThreads(null, 8, false), 1);
  for (const wrong of [0, -1, 1.5, 65, NaN, "2"])
    assert.throws(() => chooseThreads(wrong, 8, true), { code: "options", message: /threads must be a whole number/ });
});
