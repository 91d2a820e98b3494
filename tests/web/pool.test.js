/** The pool, over real threads: every workgroup of every dispatch once, and none before the dispatch ahead is done. */
import assert from "node:assert/strict";
import test from "node:test";
import { Resolver } from "../../web/cpu_commands.js";
import { createMemory, planMemory } from "../../web/cpu_memory.js";
import { instantiate, withSharedMemory } from "../../web/cpu_module.js";
import { startWorker } from "../../web/node_host.js";
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

async function make(threads, start = startWorker) {
  const layout = planMemory(MANIFEST, MODULE, threads);
  const memory = createMemory(MANIFEST, layout, true);
  const module = new WebAssembly.Module(withSharedMemory(kernelModule()));
  const { functions } = instantiate(module, memory, layout.stacks[0]);
  const machine = { functions, bytes: new Uint8Array(memory.buffer) };
  const pool = await Pool.start(module, memory, layout.stacks, machine, start);
  const view = (address) => new Int32Array(memory.buffer, address, MOST);
  const [a, b, counts] = layout.buffers.map(view);
  return { pool, resolver: new Resolver(MANIFEST, layout), setN: (n) => (view(layout.table)[0] = n), a, b, counts };
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
