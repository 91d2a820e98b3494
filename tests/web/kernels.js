/** A module of kernels as emcc makes them, assembled by hand: the tests need no compiler. */

const section = (id, ...bytes) => [id, ...number(bytes.length), ...bytes];
const list = (items) => [...number(items.length), ...items.flat()];
const text = (value) => list([...value].map((letter) => [letter.charCodeAt(0)]));
function number(value) {
  const bytes = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) + 0x80);
  return [...bytes, value];
}

const get = (at) => [0x20, at];
const load = (offset) => [0x28, 2, offset];
const constant = (value) => [0x41, ...number(value)];
const [ADD, SUB, SHL, STORE] = [[0x6a], [0x6b], [0x74], [0x36, 2, 0]];
const element = (address, at) => [...address, ...at, ...constant(2), ...SHL, ...ADD];
const [BUFFERS, TABLE, GROUP, LAST] = [get(0), get(1), get(4), get(5)];

/** of n groups: out[g] = in[n - 1 - g] + 1, and counts[g] += 1; the table's first value is n. */
const REVERSE = [
  ...[0x02, 0x40, 0x03, 0x40, ...GROUP, ...LAST, 0x4e, 0x0d, 1],
  ...element([...BUFFERS, ...load(4)], GROUP),
  ...element([...BUFFERS, ...load(0)], [...TABLE, ...load(0), ...constant(1), ...SUB, ...GROUP, ...SUB]),
  ...[...load(0), ...constant(1), ...ADD, ...STORE],
  ...[...element([...BUFFERS, ...load(8)], GROUP), 0x22, 6],
  ...[...get(6), ...load(0), ...constant(1), ...ADD, ...STORE],
  ...[...GROUP, ...constant(1), ...ADD, 0x21, 4, 0x0c, 0, 0x0b, 0x0b],
];
const TRAP = [0x00];

/** The first address that the module leaves free. */
export const HEAP_BASE = 1000;
export const PAGES = 1;

const GLOBAL_HEAP_BASE = [0x7f, 0, 0x41, 0xe8, 0x07, 0x0b];
const GLOBAL_STACK_POINTER = [0x7f, 1, 0x41, 0xe4, 0x00, 0x0b];
const code = (body) => list([[0x01, 1, 0x7f, ...body, 0x0b]].flat().map((byte) => [byte]));
const exported = (name, kind, index) => [...text(name), kind, index];

/** k0 reverses, k1 traps. `first`: whether another import comes before the memory's, as a compiler may order them. */
export function kernelModule({ limits = [0x01, PAGES, ...number(65536)], memory = true, first = false } = {}) {
  const imports = first ? [[...text("env"), ...text("number"), 3, 0x7f, 0]] : [];
  if (memory) imports.push([...text("env"), ...text("memory"), 2, ...limits]);
  return Uint8Array.from([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(0, ...text("a name"), 1, 2, 3),
    ...section(1, ...list([[0x60, ...list(Array(6).fill([0x7f])), 0]])),
    ...section(2, ...list(imports)),
    ...section(3, ...list([[0], [0]])),
    ...section(6, ...list([GLOBAL_HEAP_BASE, GLOBAL_STACK_POINTER])),
    ...section(7, ...list([
      exported("k0", 0, 0), exported("k1", 0, 1),
      exported("__heap_base", 3, Number(first)), exported("__stack_pointer", 3, Number(first) + 1),
    ])),
    ...section(10, ...list([code(REVERSE), code(TRAP)])),
  ]);
}
