import assert from "node:assert/strict";
import test from "node:test";
import { CPU, CPUBackend } from "../../web/cpu_backend.js";
import { Resolver } from "../../web/cpu_commands.js";
import { createMemory, planMemory } from "../../web/cpu_memory.js";
import { instantiate, memoryImport, withSharedMemory } from "../../web/cpu_module.js";
import { Executor } from "../../web/executor.js";
import { wasmDriver } from "../../web/wasm_target.js";
import { HEAP_BASE, PAGES, kernelModule } from "./kernels.js";
import { entryOf } from "./support.js";

const GROUPS = 6;
const SIZE = 4 * GROUPS;
const MODULE = { heapBase: HEAP_BASE, minimum: PAGES };
const MANIFEST = {
  name: "m",
  profiles: { simd128: { features: [], kernels: "k.wasm", module: "module.bin" } },
  buffers: [
    { name: "a", kind: "input", size: SIZE },
    { name: "b", kind: "output", size: SIZE },
    { name: "counts", kind: "state", size: SIZE },
    { name: "w", kind: "weight", size: 8, parts: [{ file: "w.bin", offset: 4, size: 8, at: 0 }] },
  ],
  binding_sets: [
    [
      [0, 0, SIZE],
      [1, 0, SIZE],
      [2, 0, SIZE],
    ],
    [
      [1, 0, SIZE],
      [0, 0, SIZE],
      [2, 0, SIZE],
    ],
  ],
  table: { row_bytes: 256, used_bytes: 16, rows: 2 },
  functions: {
    step: {
      index: 0,
      arguments: [{ name: "x", dtype: "i32", shape: ["n"], buffer: 0, offset: 0 }],
      results: [{ name: "y", dtype: "i32", shape: ["n"], buffer: 1, offset: 0 }],
      variables: { n: [1, GROUPS] },
      slots: ["n"],
      captured: false,
    },
  },
};
const words = (commands) => Uint32Array.from(commands.flat());
const table = (n) => Int32Array.of(n, 0, 0, 0, n, 0, 0, 0);
/** Dispatches: kernel, set, x, y, z, row. Copies: source, from, target, to, bytes. */
const dispatch = (...rest) => [1, ...rest];
const copy = (...rest) => [2, ...rest];

function make() {
  const layout = planMemory(MANIFEST, MODULE, 1);
  const memory = createMemory(MANIFEST, layout, false);
  const { functions } = instantiate(new WebAssembly.Module(kernelModule()), memory, layout.stacks[0]);
  const cpu = new CPU("simd128", 1);
  const backend = new CPUBackend(cpu, MANIFEST, layout, memory, functions);
  const steps = [];
  const vm = { call: () => steps.shift(), resume: () => steps.shift() };
  return { layout, memory, cpu, backend, steps, executor: new Executor(MANIFEST, vm, backend) };
}

test("the import of the memory is found behind others, and patched to be shared", () => {
  for (const first of [false, true]) {
    const bytes = kernelModule({ first });
    const { flags, minimum } = memoryImport(bytes);
    assert.equal(bytes[flags], 1);
    assert.equal(minimum, PAGES);
    const shared = withSharedMemory(bytes);
    assert.deepEqual(
      [...shared].flatMap((byte, at) => (byte === bytes[at] ? [] : [[at, byte]])),
      [[flags, 3]],
    );
    assert.equal(bytes[flags], 1);
    const memory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES, shared: true });
    const env = { memory, number: 1 };
    new WebAssembly.Instance(new WebAssembly.Module(shared), { env });
    assert.throws(() => new WebAssembly.Instance(new WebAssembly.Module(bytes), { env }), WebAssembly.LinkError);
  }
});

test("modules that cannot be used are clear errors", () => {
  assert.throws(() => memoryImport(kernelModule({ memory: false })), { code: "format", message: /imports no memory/ });
  assert.throws(() => memoryImport(kernelModule().subarray(0, 45)), { code: "format" });
  assert.throws(() => memoryImport(new Uint8Array()), { code: "format" });
  assert.throws(() => withSharedMemory(kernelModule({ limits: [0, 1] })), {
    code: "format",
    message: /does not bound its memory/,
  });
  const empty = new WebAssembly.Module(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0));
  const memory = new WebAssembly.Memory({ initial: 1 });
  assert.throws(() => instantiate(empty, memory, 0), { code: "format", message: /__heap_base and __stack_pointer/ });
});

test("a memory has room for everything, apart and aligned", () => {
  const layout = planMemory(MANIFEST, MODULE, 3);
  const sizes = MANIFEST.buffers.map(({ size }) => size);
  const stack = 256 * 1024;
  const ranges = [
    [0, HEAP_BASE],
    ...layout.stacks.map((top) => [top - stack, top]),
    [layout.table, layout.table + 512],
    ...layout.sets.map((at) => [at, at + 12]),
    ...layout.buffers.map((at, buffer) => [at, at + sizes[buffer]]),
  ];
  ranges.slice(1).forEach(([start], at) => assert.ok(start >= ranges[at][1] && start % 64 === 0));
  assert.ok(ranges.at(-1)[1] <= layout.pages * 65536);
  assert.equal(planMemory(MANIFEST, { heapBase: 8, minimum: 77 }, 1).pages, 77);
  const words = new Uint32Array(createMemory(MANIFEST, layout, false).buffer);
  const [a, b, counts] = layout.buffers;
  assert.deepEqual([...words.subarray(layout.sets[1] / 4, layout.sets[1] / 4 + 3)], [b, a, counts]);
});

test("a model that needs more than 4 GiB is refused in one sentence", () => {
  const buffers = [{ name: "w", kind: "weight", size: 2 ** 32 - 4096 }];
  assert.throws(() => planMemory({ ...MANIFEST, name: "Large-7B", buffers, binding_sets: [] }, MODULE, 1), {
    code: "limits",
    message: /^Large-7B needs 4\.30 GB of memory but WebAssembly's is at most 4\.29 GB: [^.]+\.$/,
  });
});

test("memory that the browser does not give is a clear error", () => {
  const layout = { ...planMemory(MANIFEST, MODULE, 1), pages: 2 ** 20 };
  assert.throws(() => createMemory(MANIFEST, layout, false), { code: "out-of-memory", message: /close other tabs/ });
});

test("a step runs its kernels and copies in order, and gives the result", async () => {
  const { executor, steps, memory, layout } = make();
  const x = Int32Array.of(10, 20, 30, 40, 50, 60);
  const commands = words([
    dispatch(0, 0, 3, 2, 1, 0), // b = reverse of a, + 1
    copy(1, 8, 0, 0, 8), // a[0..1] = b[2..3]
    dispatch(0, 0, GROUPS, 1, 1, 1),
    0,
  ]);
  for (let round = 1; round <= 2; round++) {
    steps.push({ status: 0, commands, table: table(GROUPS) });
    assert.deepEqual(await executor.run("step", { n: GROUPS }, { x }, "y"), Int32Array.of(61, 51, 41, 31, 32, 42));
    const counts = new Int32Array(memory.buffer, layout.buffers[2], GROUPS);
    assert.deepEqual([...counts], Array(GROUPS).fill(2 * round));
  }
});

test("a suspended call goes on with the value that the kernels made", async () => {
  const { executor, steps } = make();
  steps.push(
    { status: 1, commands: words([dispatch(0, 0, GROUPS, 1, 1, 0), 3, 1, 4]), table: table(GROUPS) },
    { status: 0, commands: words([dispatch(0, 1, GROUPS, 1, 1, 0), dispatch(0, 0, GROUPS, 1, 1, 0), 0]), table: table(GROUPS) },
  );
  const resumed = [];
  executor.vm.resume = (value) => (resumed.push(value), steps.shift());
  const x = Int32Array.of(1, 2, 3, 4, 5, 6);
  assert.deepEqual(await executor.run("step", { n: GROUPS }, { x }, "y"), Int32Array.of(9, 8, 7, 6, 5, 4));
  assert.deepEqual(resumed, [6]);
});

test("a stream longer than a piece is run to its end", async () => {
  const { backend, steps, executor, memory, layout } = make();
  const count = 2500;
  const commands = words([...Array.from({ length: count }, (_, at) => dispatch(0, at % 2, GROUPS, 1, 1, 0)), 0]);
  steps.push({ status: 0, commands, table: table(GROUPS) });
  await executor.run("step", { n: GROUPS }, { x: new Int32Array(GROUPS) });
  const last = new Int32Array(memory.buffer, layout.buffers[count % 2], GROUPS);
  assert.deepEqual([...last], Array(GROUPS).fill(count));
  assert.equal(backend.cpu.failure, null);
});

test("what is outside of a buffer is never touched", async () => {
  const resolver = new Resolver(MANIFEST, planMemory(MANIFEST, MODULE, 1));
  for (const [buffer, offset, bytes] of [
    [0, SIZE, 4],
    [0, 0, SIZE + 4],
    [9, 0, 4],
  ]) {
    assert.throws(() => resolver.place(buffer, offset, bytes), { code: "format" });
  }
  const { executor, steps, cpu } = make();
  const run = () => executor.run("step", { n: GROUPS }, { x: new Int32Array(GROUPS) });
  steps.push({ status: 0, commands: words([copy(0, 4, 1, 0, SIZE), 0]), table: table(GROUPS) });
  await assert.rejects(run(), { code: "format", message: /touches bytes 4 to 28 of "a", which has 24/ });
  steps.push({ status: 0, commands: words([7]), table: table(GROUPS) });
  await assert.rejects(run(), { code: "format", message: /unknown command 7/ });
  assert.equal(cpu.failure, null);
});

test("a kernel that traps makes the engine's device fail", async () => {
  const { executor, steps, cpu } = make();
  steps.push({ status: 0, commands: words([dispatch(1, 0, 1, 1, 1, 0), 0]), table: table(GROUPS) });
  const run = () => executor.run("step", { n: GROUPS }, { x: new Int32Array(GROUPS) });
  await assert.rejects(run(), { code: "device", message: /A kernel failed on the CPU \(unreachable\)/ });
  assert.equal((await cpu.failed).code, "device");
  await assert.rejects(run(), { code: "device" });
});

test("the driver compiles the kernels and places the weights", async () => {
  const kernels = kernelModule();
  const files = { "k.wasm": kernels, "w.bin": Uint8Array.of(9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8) };
  const manifest = { ...MANIFEST, files: Object.fromEntries(Object.entries(files).map(([k, v]) => [k, entryOf(v)])) };
  const loader = { file: async (name) => files[name] };
  const driver = wasmDriver({ profile: null, threads: 1, startWorker: () => assert.fail("one thread needs no worker") });
  const compiled = [];
  const device = await driver.open(manifest);
  assert.equal(device.profile, "simd128");
  const backend = await driver.prepare(device, manifest, loader, { onCompiled: (...state) => compiled.push(state) });
  assert.deepEqual(compiled, [
    [0, 1],
    [1, 1],
  ]);
  const at = backend.layout.buffers[3];
  assert.deepEqual([...new Uint8Array(backend.memory.buffer, at, 8)], [1, 2, 3, 4, 5, 6, 7, 8]);
  files["k.wasm"] = kernels.subarray(0, kernels.length - 2);
  await assert.rejects(driver.prepare(device, manifest, loader, { onCompiled() {} }), {
    code: "kernel",
    message: /^k\.wasm does not compile in this browser/,
  });
});
