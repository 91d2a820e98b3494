import assert from "node:assert/strict";
import test from "node:test";
import { Device } from "../../web/device.js";
import { Executor } from "../../web/executor.js";
import { GPUBackend } from "../../web/gpu_backend.js";
import { Pipelines } from "../../web/pipelines.js";
import { createBuffers, partsByShard, uploadWeights } from "../../web/weights.js";
import { FakeGPU } from "./support.js";

const MANIFEST = {
  name: "m",
  buffers: [
    { name: "input", kind: "input", size: 512 },
    { name: "work", kind: "storage", size: 512 },
    { name: "logits", kind: "output", size: 16 },
    {
      name: "w0",
      kind: "weight",
      size: 8,
      parts: [
        { file: "b.bin", offset: 4, size: 4, at: 4 },
        { file: "a.bin", offset: 0, size: 4, at: 0 },
      ],
    },
    { name: "w1", kind: "weight", size: 4, parts: [{ file: "b.bin", offset: 0, size: 4, at: 0 }] },
  ],
  binding_sets: [
    [
      [0, 0, 256],
      [1, 256, 256],
    ],
    [
      [1, 0, 256],
      [2, 0, 16],
    ],
  ],
  table: { row_bytes: 256, used_bytes: 16, rows: 2 },
  functions: {
    step: {
      index: 3,
      arguments: [
        { name: "tokens", dtype: "i32", shape: ["n"], buffer: 0, offset: 0 },
        { name: "positions", dtype: "i32", shape: ["n"], buffer: 0, offset: 16 },
        { name: "past", shape: ["m", 7] },
      ],
      results: [{ name: "logits", dtype: "f32", shape: [1, 4], buffer: 2, offset: 0 }],
      variables: { n: [1, 4], m: [0, 9] },
      slots: ["m", "n", "found"],
      captured: false,
    },
  },
};
const KERNELS = [
  { name: "k0", entry: "main", wgsl: "", access: ["read", "read_write"] },
  { name: "k1", entry: "main", wgsl: "", access: ["read", "read_write"] },
  { name: "k2", entry: "main", wgsl: "", access: ["read_write", "read_write"] },
];
const COMMANDS = [
  1, 0, 0, 5, 1, 1, 0, 1, 1, 1, 2, 3, 1, 1, 2, 1, 256, 2, 4, 8, 1, 0, 0, 6, 1, 1, 0, 1, 2, 0, 1, 1, 1, 0, 0,
];

async function make(commands = COMMANDS) {
  const device = new Device(new FakeGPU(), "f32", {});
  const calls = [];
  const vm = {
    call(...args) {
      calls.push(args);
      return { status: 0, commands: Uint32Array.from(commands), table: Int32Array.of(1, 2, 3, 4, 5, 6, 7, 8) };
    },
  };
  const buffers = await createBuffers(device, MANIFEST);
  const pipelines = await Pipelines.compile(device, KERNELS, { usedBytes: 16 });
  return {
    executor: new Executor(MANIFEST, vm, new GPUBackend(device, MANIFEST, buffers, pipelines)),
    log: device.gpu.log,
    calls,
    vm,
    device,
    buffers,
  };
}
const INPUTS = { tokens: Int32Array.of(11, 12), positions: Int32Array.of(1, 2) };

test("one call: dimensions to the VM, inputs and table written once, the stream encoded", async () => {
  const { executor, log, calls } = await make();
  assert.equal(await executor.run("step", { n: 2, m: 1 }, INPUTS), null);
  assert.deepEqual(calls, [[3, Int32Array.of(2, 2, 1, 7), 0, 2]]);
  const writes = log.filter(([what]) => what === "write");
  const words = (bytes) => [...new Int32Array(Uint8Array.from(bytes).buffer)];
  assert.equal(writes.length, 2);
  assert.deepEqual([writes[0][1], writes[0][2], words(writes[0][3])], ["input", 0, [11, 12, 0, 0, 1, 2]]);
  const table = words(writes[1][3]);
  assert.deepEqual(
    [writes[1][1], table.length, table.slice(0, 4), table.slice(64, 68)],
    ["symbol table", 128, [1, 2, 3, 4], [5, 6, 7, 8]],
  );
  assert.deepEqual(
    log.filter(([what]) => ["pass", "dispatch", "copy", "end"].includes(what)),
    [
      ["pass"],
      ["dispatch", "k0", ["input", "work"], 0, [5, 1, 1]],
      ["dispatch", "k1", ["work", "logits"], 256, [2, 3, 1]],
      ["end"],
      ["copy", "work", 256, "logits", 4, 8],
      ["pass"],
      ["dispatch", "k0", ["input", "work"], 0, [6, 1, 1]],
      ["dispatch", "k2", ["input", "work"], 0, [1, 1, 1]],
      ["end"],
    ],
  );
});

test("layouts are made once a pattern of access, bind groups once a set and layout", async () => {
  const { executor, log } = await make();
  assert.deepEqual(
    log.filter(([what]) => what === "layout"),
    [
      ["layout", "uniform,read-only-storage,storage"],
      ["layout", "uniform,storage,storage"],
    ],
  );
  for (let step = 0; step < 3; step++) await executor.run("step", { n: 2, m: 1 }, INPUTS);
  const groups = log.filter(([what]) => what === "group");
  assert.equal(groups.length, 3);
  assert.deepEqual(groups[0], ["group", [0, "symbol table", 0, 16], [1, "input", 0, 256], [2, "work", 256, 256]]);
});

test("a result is read back", async () => {
  const { executor, buffers } = await make();
  new Float32Array(buffers[2].bytes.buffer).set([1.5, 0, 0, 4.25]);
  new Float32Array(buffers[1].bytes.buffer).set([2.5, 3.5], 64);
  assert.deepEqual(await executor.run("step", { n: 2, m: 1 }, INPUTS, "logits"), Float32Array.of(1.5, 2.5, 3.5, 4.25));
  await assert.rejects(executor.run("step", { n: 2, m: 1 }, INPUTS, "hidden"), {
    code: "format",
    message: /no result "hidden"/,
  });
});

/** As `make`, of a function whose dispatches are always these. */
async function makeCaptured(commands) {
  const made = await make(commands);
  const { step } = MANIFEST.functions;
  const functions = { step: { ...step, captured: true } };
  made.executor.manifest = { ...MANIFEST, functions };
  return made;
}
const DISPATCHES = [1, 0, 0, 5, 1, 1, 0, 1, 0, 1, 5, 1, 1, 0, 1, 1, 1, 2, 3, 1, 1, 0];
const ran = (log) => log.filter(([what]) => ["pass", "dispatch", "end"].includes(what));

test("a captured function is replayed: the same dispatches, with the grids of the call", async () => {
  const plain = await makeCaptured(DISPATCHES);
  plain.executor.replay = false;
  const captured = await makeCaptured(DISPATCHES);
  const other = [...DISPATCHES];
  other[3] = 9;
  for (const commands of [DISPATCHES, other, DISPATCHES]) {
    for (const { executor, vm } of [plain, captured]) {
      vm.call = () => ({ status: 0, commands: Uint32Array.from(commands), table: new Int32Array(8) });
      await executor.run("step", { n: 2, m: 1 }, INPUTS);
    }
  }
  assert.deepEqual(ran(captured.log), ran(plain.log));
  assert.equal(ran(plain.log).filter(([what]) => what === "dispatch").length, 9);
});

test("what a captured function resolves to is asked for once, until a buffer changes or the dispatches do", async () => {
  const { executor, vm, log, device } = await makeCaptured(DISPATCHES);
  let asked = 0;
  const { of } = executor.backend.pipelines;
  executor.backend.pipelines.of = (kernel) => (asked++, of.call(executor.backend.pipelines, kernel));
  const run = () => executor.run("step", { n: 2, m: 1 }, INPUTS);
  for (let step = 0; step < 3; step++) await run();
  assert.equal(asked, 3);

  executor.backend.replaceBuffer(0, device.gpu.createBuffer({ label: "grown", size: 1024, usage: 0 }));
  await run();
  assert.equal(asked, 6);
  assert.deepEqual(ran(log).at(-4), ["dispatch", "k0", ["grown", "work"], 0, [5, 1, 1]]);

  // The VM leaves a dispatch out whose grid is empty.
  const fewer = DISPATCHES.slice(7);
  vm.call = () => ({ status: 0, commands: Uint32Array.from(fewer), table: new Int32Array(8) });
  await run();
  assert.equal(asked, 8);
  assert.equal(ran(log).slice(-4)[1][1], "k0");
  assert.deepEqual(ran(log).slice(-4)[1][2], ["work", "logits"]);
});

test("a suspended call is resumed with the value on the GPU, once what came before is done", async () => {
  const { executor, buffers, vm, log } = await make();
  const parts = [
    { status: 1, commands: Uint32Array.of(1, 0, 0, 5, 1, 1, 0, 2, 0, 0, 1, 8, 4, 3, 1, 8), table: new Int32Array(8) },
    { status: 1, commands: Uint32Array.of(3, 1, 12), table: new Int32Array(8) },
    { status: 0, commands: Uint32Array.of(1, 1, 1, 2, 1, 1, 0, 0), table: Int32Array.of(1, 2, 3, 0, 0, 0, 0, 0) },
  ];
  new Int32Array(buffers[1].bytes.buffer)[3] = -6;
  const resumed = [];
  vm.call = () => parts[0];
  vm.resume = (value) => (resumed.push(value), parts[resumed.length]);
  const { step } = MANIFEST.functions;
  const results = [{ name: "ids", dtype: "i32", shape: ["found"], buffer: 2, offset: 0 }];
  executor.manifest = { ...MANIFEST, functions: { step: { ...step, results } } };
  new Int32Array(buffers[2].bytes.buffer).set([4, -5, 6, 7]);
  assert.deepEqual(await executor.run("step", { n: 2, m: 1 }, INPUTS, "ids"), Int32Array.of(4, -5, 6));
  assert.deepEqual(resumed, [11, -6]); // 11 is the first of the tokens, which the first part copied
  assert.equal(log.filter(([what]) => what === "dispatch").length, 2);
});

test("dispatches are counted without running", async () => {
  const { executor, log } = await make();
  const before = log.length;
  assert.equal(executor.countDispatches("step", { n: 1, m: 0 }), 4);
  assert.equal(log.length, before);
});

test("what is wrong is a clear error", async () => {
  const { executor, vm, device } = await make([9]);
  await assert.rejects(executor.run("step", { n: 1, m: 0 }, INPUTS), { code: "format", message: /unknown command 9/ });
  await assert.rejects(executor.run("step", { n: 1 }, INPUTS), { code: "format", message: /unknown variable "m"/ });
  vm.call = () => {
    throw new Error("the context is full: expected at most 9, got 10");
  };
  await assert.rejects(executor.run("step", { n: 1, m: 0 }, INPUTS), {
    message: /call of "step" was refused: the context is full/,
  });
  device.gpu.lose({ reason: "unknown", message: "" });
  await device.failed;
  await assert.rejects(executor.run("step", { n: 1, m: 0 }, INPUTS), { code: "device-lost" });
});

test("a read-back that fails with the device tells that the device is lost", async () => {
  const { executor, device } = await make();
  const { createBuffer } = device.gpu;
  device.gpu.createBuffer = (options) => ({
    ...createBuffer(options),
    mapAsync: async () => {
      setTimeout(() => device.gpu.lose({ reason: "unknown", message: "reset" }), 5);
      throw new DOMException("mapping aborted", "AbortError");
    },
  });
  await assert.rejects(executor.run("step", { n: 1, m: 0 }, INPUTS, "logits"), {
    code: "device-lost",
    message: /reset/,
  });
});

test("a read-back that fails on the host leaves its buffer unmapped for the next", async () => {
  const { executor, device } = await make();
  const { createBuffer } = device.gpu;
  let mapped = false;
  let fails = true;
  device.gpu.createBuffer = (options) => ({
    ...createBuffer(options),
    mapAsync: async () => void (mapped = true),
    getMappedRange: (at, length) => {
      if (fails) throw new RangeError("Array buffer allocation failed");
      return new ArrayBuffer(length);
    },
    unmap: () => (mapped = false),
  });
  await assert.rejects(executor.run("step", { n: 1, m: 0 }, INPUTS, "logits"), RangeError);
  assert.equal(mapped, false);
  fails = false;
  assert.equal((await executor.run("step", { n: 1, m: 0 }, INPUTS, "logits")).length, 4);
  assert.equal(mapped, false);
});

test("compiling reports progress, names a kernel that fails, and stops when aborted", async () => {
  const device = new Device(new FakeGPU(), "f32", {});
  const seen = [];
  await Pipelines.compile(device, KERNELS, { usedBytes: 16, onCompiled: (done, total) => seen.push([done, total]) });
  assert.deepEqual(seen, [
    [1, 3],
    [2, 3],
    [3, 3],
  ]);
  device.gpu.failingKernel = "k1";
  await assert.rejects(Pipelines.compile(device, KERNELS, { usedBytes: 16 }), {
    code: "kernel",
    message: 'Kernel "k1" does not compile on this GPU (line 3: bad token): please report this.',
  });
  await assert.rejects(Pipelines.compile(device, KERNELS, { usedBytes: 16, signal: AbortSignal.abort() }), {
    code: "aborted",
  });
});

test("weights are assembled from their shards, two of them in memory at most", async () => {
  const { device, buffers } = await make();
  const shards = { "a.bin": Uint8Array.of(1, 2, 3, 4), "b.bin": Uint8Array.of(9, 9, 9, 9, 5, 6, 7, 8) };
  const asked = [];
  await uploadWeights(device, MANIFEST, buffers, { file: async (name) => (asked.push(name), shards[name]) });
  assert.deepEqual([...buffers[3].bytes], [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual([...buffers[4].bytes], [9, 9, 9, 9]);
  assert.deepEqual(asked, ["a.bin", "b.bin"]);
  assert.deepEqual([...partsByShard(MANIFEST).keys()], ["a.bin", "b.bin"]);

  const failing = { file: async (name) => (name === "b.bin" ? Promise.reject(new Error("damaged")) : shards[name]) };
  await assert.rejects(uploadWeights(device, MANIFEST, buffers, failing), /damaged/);
});
