/** Which commands of a step a pool may run at the same time. */
import assert from "node:assert/strict";
import test from "node:test";
import { END, ENTRY_WORDS, GROUPS, TOTAL } from "../../web/cpu_commands.js";
import { Phases } from "../../web/phases.js";

const sized = (name, kind = "storage") => ({ name, kind, size: 100 });
const BUFFERS = [sized("a"), sized("b"), sized("c"), sized("d"), sized("w", "weight")];
const [A, B, C, D, W] = BUFFERS.map((_, at) => at);
const all = (buffer) => [buffer, 0, 100];

/** Phases of commands [reads..., written], each of one kernel, as [commands, workgroups] lists. */
function plan(commands, { writes = true } = {}) {
  const binding_sets = commands.map(({ touches }) => touches.map((part) => (Array.isArray(part) ? part : all(part))));
  const manifest = { buffers: BUFFERS, binding_sets };
  if (writes) manifest.writes = commands.map(({ touches }) => [touches.length - 1]);
  const layout = { buffers: BUFFERS.map((_, at) => 1000 + 100 * at), sets: commands.map((_, at) => 16 * at) };
  const entries = new Int32Array(commands.length * ENTRY_WORDS);
  commands.forEach(({ groups = 10, copy }, at) => {
    entries.set([copy ? -1 : at, 16 * at], at * ENTRY_WORDS);
    entries[at * ENTRY_WORDS + GROUPS] = copy ? 1 : groups;
  });
  new Phases(manifest, layout).plan(entries, commands.length);
  const found = [];
  for (let first = 0; first < commands.length; first = entries[first * ENTRY_WORDS + END])
    found.push([entries[first * ENTRY_WORDS + END] - first, entries[first * ENTRY_WORDS + TOTAL]]);
  return found;
}

for (const [what, commands, expected] of [
  ["readers of one result", [{ touches: [A, W, B] }, { touches: [A, W, C], groups: 5 }], [[2, 15]]],
  ["a result and its reader", [{ touches: [A, B] }, { touches: [B, C] }], [[1, 10], [1, 10]]],
  ["a reader, and who overwrites what it reads", [{ touches: [A, B] }, { touches: [C, A] }], [[1, 10], [1, 10]]],
  ["two writers of one place", [{ touches: [A, B] }, { touches: [C, B] }], [[1, 10], [1, 10]]],
  ["neighbours in a buffer", [{ touches: [A, [B, 0, 50]] }, { touches: [A, [B, 50, 50]] }], [[2, 20]]],
  ["overlapping parts", [{ touches: [A, [B, 0, 52]] }, { touches: [A, [B, 50, 50]] }], [[1, 10], [1, 10]]],
  ["the third against the first", [{ touches: [A, B] }, { touches: [A, C] }, { touches: [B, D] }], [[2, 20], [1, 10]]],
  ["a chain", [{ touches: [A, B], groups: 1 }, { touches: [B, C], groups: 1 }, { touches: [C, A] }], [[2, 1], [1, 10]]],
  ["one of one workgroup beside another", [{ touches: [A, B], groups: 1 }, { touches: [A, C] }], [[2, 11]]],
  ["an empty one", [{ touches: [A, B], groups: 0 }, { touches: [B, C] }], [[1, 1], [1, 10]]],
  ["a copy", [{ touches: [A, B] }, { touches: [C, D], copy: true }, { touches: [A, B] }], [[1, 10], [1, 1], [1, 10]]],
])
  test(`phases: ${what}`, () => assert.deepEqual(plan(commands), expected));

test("where it is not known what a kernel writes, it may write everything but weights", () => {
  const commands = [{ touches: [A, W, B] }, { touches: [C, W, D] }, { touches: [C, W, A] }];
  assert.deepEqual(plan(commands, { writes: false }), [[2, 20], [1, 10]]);
});
