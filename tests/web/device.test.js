import assert from "node:assert/strict";
import test from "node:test";
import { Device, chooseProfile, neededLimits, openDevice } from "../../web/device.js";
import { FakeGPU } from "./support.js";

const manifest = (profiles, extra = {}) => ({
  name: "m",
  buffers: [],
  binding_sets: [],
  profiles: Object.fromEntries(Object.entries(profiles).map(([name, features]) => [name, { features }])),
  ...extra,
});
const OFFERED = { maxBufferSize: 2 ** 28, maxStorageBufferBindingSize: 2 ** 27 };
const INFO = { vendor: "v", architecture: "a", description: "d", isFallbackAdapter: false };

test("the profile with the most features of the adapter is chosen", () => {
  const all = manifest({ "f32": [], "f16": ["shader-f16"], "f16-subgroups": ["shader-f16", "subgroups"] });
  assert.equal(chooseProfile(all, new Set(), null), "f32");
  assert.equal(chooseProfile(all, new Set(["shader-f16"]), null), "f16");
  assert.equal(chooseProfile(all, new Set(["subgroups"]), null), "f32");
  assert.equal(chooseProfile(all, new Set(["shader-f16", "subgroups"]), null), "f16-subgroups");
  assert.equal(chooseProfile(all, new Set(["shader-f16", "subgroups"]), "f32"), "f32");
  assert.throws(() => chooseProfile(all, new Set(), "f64"), { code: "options", message: /choose one of f32, f16/ });
  assert.throws(() => chooseProfile(manifest({ f16: ["shader-f16"] }), new Set(), null), {
    code: "limits",
    message: /lacks shader-f16/,
  });
});

test("limits above the defaults are asked for, and missed ones named", () => {
  const small = manifest({}, { buffers: [{ size: 1000 }], binding_sets: [[[0, 0, 1000]]] });
  assert.deepEqual(neededLimits(small, OFFERED), {});
  const large = manifest({}, { buffers: [{ size: 2 ** 29 }], binding_sets: [] });
  assert.deepEqual(neededLimits(large, { ...OFFERED, maxBufferSize: 2 ** 30 }), { maxBufferSize: 2 ** 29 });
  assert.throws(() => neededLimits(large, OFFERED), {
    code: "limits",
    message: /maxBufferSize = 536870912 \(537 MB\) but this GPU offers 268435456/,
  });
});

test("no WebGPU and no adapter are told apart", async () => {
  await assert.rejects(openDevice(manifest({ f32: [] }), { gpu: undefined }), { code: "no-webgpu" });
  for (const requestAdapter of [async () => null, async () => Promise.reject(new Error("x"))]) {
    await assert.rejects(openDevice(manifest({ f32: [] }), { gpu: { requestAdapter } }), { code: "no-adapter" });
  }
});

test("a device opens with the features of its profile", async () => {
  const gpu = new FakeGPU();
  let asked;
  const adapter = {
    features: new Set(["shader-f16"]),
    limits: OFFERED,
    info: INFO,
    requestDevice: async (options) => ((asked = options), gpu),
  };
  const device = await openDevice(manifest({ f32: [], f16: ["shader-f16"] }), {
    gpu: { requestAdapter: async () => adapter },
  });
  assert.deepEqual(asked, { requiredFeatures: ["shader-f16"], requiredLimits: {} });
  assert.equal(device.profile, "f16");
  assert.deepEqual(device.info, INFO);
  adapter.requestDevice = async () => Promise.reject(new Error("busy"));
  await assert.rejects(openDevice(manifest({ f32: [] }), { gpu: { requestAdapter: async () => adapter } }), {
    code: "no-adapter",
  });
});

test("a lost device and uncaptured errors are remembered and told", async () => {
  const gpu = new FakeGPU();
  const device = new Device(gpu, "f32", INFO);
  device.check();
  gpu.lose({ reason: "unknown", message: "driver reset." });
  const error = await device.failed;
  assert.equal(error.code, "device-lost");
  assert.equal(error.message, "The GPU was lost (driver reset): load the model again to go on.");
  assert.throws(() => device.check(), error);

  const other = new Device(new FakeGPU(), "f32", INFO);
  other.gpu.dispatchEvent(Object.assign(new Event("uncapturederror"), { error: { message: "bad bind group" } }));
  assert.equal((await other.failed).code, "device");
});

test("a device that was destroyed on purpose is no failure", async () => {
  const device = new Device(new FakeGPU(), "f32", INFO);
  device.destroy();
  await new Promise(setImmediate);
  device.check();
});

test("guarded work reports memory and validation errors", async () => {
  const device = new Device(new FakeGPU(), "f32", INFO);
  assert.equal(await device.guarded("buffers", () => 5), 5);
  device.gpu.errors = [{ message: "oom" }, null];
  await assert.rejects(
    device.guarded("m (1 GB)", () => 5),
    { code: "out-of-memory", message: /not enough memory for m \(1 GB\)/ },
  );
  device.gpu.errors = [null, { message: "size" }];
  await assert.rejects(
    device.guarded("m", () => 5),
    { code: "device" },
  );
});
