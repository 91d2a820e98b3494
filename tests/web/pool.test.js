/** The pool, over real threads: every workgroup of every dispatch once, and none before the dispatch ahead is done. */
import assert from "node:assert/strict";
import test from "node:test";
import { Resolver } from "../../web/cpu_commands.js";
import { createMemory, planMemory } from "../../web/cpu_memory.js";
import { instantiate, withSharedMemory } from "../../web/cpu_module.js";
import { startWorker } from "../../web/node_host.js";
import { Phases } from "../../web/phases.js";
import { Pool } from "../../web/pool.js";
import { HEAP_BASE, PAGES, kernelModule } from "./kernels.js";

const MOST = 1000;
const sized = (name) => ({ name, kind: "state", size: 4 * MOST });
const whole = (buffer) => [buffer, 0, 4 * MOST];
const MANIFEST = {
  name: "m",
  buffers: [sized("a"), sized("b"), sized("counts")],
  binding_sets: [
    [whole(0), whole(1), whole(2)],
    [whole(1), whole(0), whole(2)],
  ],
  table: { row_bytes: 256, used_bytes: 16, rows: 1 },
};
const MODULE = { heapBase: HEAP_BASE, minimum: PAGES };

async function make(threads, start = startWorker, manifest = MANIFEST) {
  const layout = planMemory(manifest, MODULE, threads);
  const memory = createMemory(manifest, layout, true);
  const module = new WebAssembly.Module(withSharedMemory(kernelModule()));
  const { functions } = instantiate(module, memory, layout.stacks[0]);
  const machine = { functions, bytes: new Uint8Array(memory.buffer) };
  const pool = await Pool.start(module, memory, new Phases(manifest, layout), machine, start);
  const view = (address) => new Int32Array(memory.buffer, address, MOST);
  const arrays = layout.buffers.map(view);
  const [a, b, counts] = arrays;
  const setN = (/** @type {number} */ n) => (view(layout.table)[0] = n);
  return { pool, resolver: new Resolver(manifest, layout), setN, a, b, counts, arrays };
}
const dispatches = (count, groups, kernel = 0) => {
  const each = Array.from({ length: count }, (_, at) => [1, kernel, at % 2, groups, 1, 1, 0]);
  return Uint32Array.from([...each.flat(), 0]);
};

for (const threads of [2, 3, 5]) {
  test(`${threads} threads run each workgroup once, in the order of the dispatches`, async () => {
    const { pool, resolver, setN, a, b, counts } = await make(threads);
    assert.equal(pool.threads, threads);
    try {
      for (const groups of [1, 2, 3, 7, 64, MOST]) {
        for (const count of [1, 2, 301, 2600]) {
          for (const array of [a, b, counts]) array.fill(0);
          setN(groups);
          pool.run(resolver, dispatches(count, groups));
          // A group that ran too early would have read a number that is too small.
          const last = count % 2 ? b : a;
          assert.ok(last.subarray(0, groups).every((value) => value === count));
          assert.ok(counts.subarray(0, groups).every((value) => value === count));
          assert.ok(counts.subarray(groups).every((value) => value === 0));
        }
      }
    } finally {
      pool.dispose();
    }
  });
}

test("workers that sleep are there for the next step", async () => {
  const { pool, resolver, setN, counts } = await make(2);
  setN(MOST);
  for (let step = 1; step <= 5; step++) {
    pool.run(resolver, dispatches(3, MOST));
    assert.ok(counts.every((value) => value === 3 * step));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  pool.dispose();
});

test("copies are run once too, between the dispatches around them", async () => {
  const { pool, resolver, setN, a, b } = await make(3);
  setN(MOST);
  const round = [1, 0, 0, MOST, 1, 1, 0, 2, 1, 0, 0, 0, 4 * MOST]; // b = a + 1; a = b
  pool.run(resolver, Uint32Array.from([...Array(200).fill(round).flat(), 0]));
  assert.ok(a.every((value) => value === 200));
  assert.ok(b.every((value) => value === 200));
  pool.dispose();
});

test("a kernel that traps ends the step for all threads, with an error", async () => {
  const { pool, resolver, setN, counts } = await make(3);
  setN(MOST);
  const failing = Uint32Array.from([...dispatches(1, MOST, 1).subarray(0, 7), ...dispatches(2, MOST)]);
  for (let time = 0; time < 3; time++) assert.throws(() => pool.run(resolver, failing), Error);
  counts.fill(0);
  pool.run(resolver, dispatches(3, MOST));
  assert.ok(counts.every((value) => value === 3));
  pool.dispose();
});

test("a worker that does not start is a clear error, and none is left", async () => {
  let ended = 0;
  const broken = () => {
    const worker = { onmessage: null, onerror: null, terminate: () => ended++ };
    worker.postMessage = () => setTimeout(() => worker.onerror({ message: "no such file" }));
    return worker;
  };
  await assert.rejects(make(3, broken), { code: "device", message: /did not start \(no such file\): load it with one/ });
  assert.equal(ended, 2);
});

/** Six arrays, and the kernel's counts of each: it reads one, and writes another and the counts of that one. */
const NAMES = ["a", "b", "c", "d", "e", "f"];
const pairs = NAMES.flatMap((_, from) => NAMES.map((_, to) => [from, to])).filter(([from, to]) => from !== to);
const MANY = {
  ...MANIFEST,
  buffers: [...NAMES, ...NAMES.map((name) => `counts of ${name}`)].map(sized),
  binding_sets: pairs.map(([from, to]) => [from, to, NAMES.length + to].map(whole)),
  writes: [[1, 2], []],
};

test("what runs at the same time touches nothing that another command writes", async () => {
  const { pool, resolver, setN, arrays } = await make(3, startWorker, MANY);
  let seed = 1;
  const random = (/** @type {number} */ below) =>
    ((seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) >> 8) % below;
  for (let round = 0; round < 60; round++) {
    const groups = [0, 1, 2, 3, 50, MOST][round % 6];
    const expected = arrays.map(() => new Int32Array(MOST));
    for (const array of arrays) array.fill(0);
    const commands = Array.from({ length: 120 }, () => random(pairs.length));
    for (const set of commands) {
      const [from, to] = pairs[set];
      for (let g = 0; g < groups; g++) {
        expected[to][g] = expected[from][groups - 1 - g] + 1;
        expected[NAMES.length + to][g]++;
      }
    }
    setN(groups);
    pool.run(resolver, Uint32Array.from([...commands.flatMap((set) => [1, 0, set, groups, 1, 1, 0]), 0]));
    arrays.forEach((array, at) => assert.deepEqual(array, expected[at]));
  }
  pool.dispose();
});
