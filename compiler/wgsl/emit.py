"""A kernel as WGSL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import WebrelaxError
from ..schedule.kernel import GROUP, Assign, Barrier, Block, For, If, Kernel, Let, Register, Store
from ..schedule.nodes import VECTORS
from ..schedule.optimize import optimize
from ..schedule.walk import variables_read
from ..source import KernelSource
from ..symbolic import Var, as_int
from ..tir import Binary, Scalar
from .expression import TYPES, Expressions
from .names import Names

HELPERS = {
    # Exact for every finite half. unpack2x16float may flush subnormal ones, which scales of weights can be.
    "half_to_f32": """\
fn half_to_f32(bits: u32) -> f32 {
  let normal = bitcast<f32>(((bits & 0x7fffu) << 13u) + 0x38000000u);
  let subnormal = f32(bits & 0x3ffu) * 5.9604644775390625e-8f;
  let magnitude = select(normal, subnormal, (bits & 0x7c00u) == 0u);
  return bitcast<f32>(bitcast<u32>(magnitude) | ((bits & 0x8000u) << 16u));
}
""",
    "floor_div": """\
fn floor_div(a: i32, b: i32) -> i32 {
  let q = a / b;
  return select(q, q - 1, (q * b != a) && ((a < 0) != (b < 0)));
}
""",
    "floor_mod": """\
fn floor_mod(a: i32, b: i32) -> i32 {
  let r = a % b;
  return select(r, r + b, (r != 0) && ((r < 0) != (b < 0)));
}
""",
}


def emit(kernel: Kernel, slots: Mapping[Var, int], table_vec4s: int) -> KernelSource:
    """The WGSL of a kernel whose symbols stand in these slots of a table of `table_vec4s` vectors.

    Raises WebrelaxError if a symbol has no slot in the table.
    """
    kernel = optimize(kernel)
    names = Names()
    expressions = Expressions(names)
    access = tuple("read_write" if b.writable else "read" for b in kernel.bindings)
    head = [f"@group(0) @binding(0) var<uniform> table: array<vec4<i32>, {table_vec4s}>;"]
    for at, (binding, mode) in enumerate(zip(kernel.bindings, access, strict=True), 1):
        name = names.of(binding.buffer.name)
        element = TYPES[VECTORS[binding.buffer.dtype] if binding.vector else binding.buffer.dtype]
        head.append(f"@group(0) @binding({at}) var<storage, {mode}> {name}: array<{element}>;")
    head += [f"var<workgroup> {names.of(s.name)}: array<{TYPES[s.type]}, {s.size}>;" for s in kernel.shared]

    used = variables_read(kernel.body)
    prologue = []
    for symbol in kernel.symbols:
        if symbol.name in used:
            prologue.append(f"  let {names.of(symbol.name)} = {_slot(kernel, symbol, slots, table_vec4s)};")
    for place, component in zip(GROUP, "xyz", strict=True):
        if place.name in used:
            prologue.append(f"  let {names.of(place.name)} = i32(group.{component});")
    if "lane" in used:
        prologue.append(f"  let {names.of('lane')} = i32(local);")
    body = list(_block(kernel.body, "  ", expressions, names))
    parameters = []
    if any(p.name in used for p in GROUP):
        parameters.append("@builtin(workgroup_id) group: vec3<u32>")
    if "lane" in used:
        parameters.append("@builtin(local_invocation_index) local: u32")
    constants = [f"const {name} = {text};" for text, name in expressions.constants.items()]
    helpers = [HELPERS[name] for name in sorted(expressions.helpers)]
    size = ", ".join(map(str, kernel.workgroup))
    entry = [f"@compute @workgroup_size({size})", f"fn main({', '.join(parameters)}) {{"]
    lines = [*head, *constants, "", *helpers, *entry, *prologue, *body, "}"]
    return KernelSource(kernel.name, "main", "\n".join(lines) + "\n", kernel.workgroup, access)


def _slot(kernel: Kernel, symbol: Var, slots: Mapping[Var, int], table_vec4s: int) -> str:
    slot = slots.get(symbol, -1)
    if not 0 <= slot < table_vec4s * 4:
        raise WebrelaxError(f"kernel {kernel.name}: symbol {symbol.name} has no slot in the table of {table_vec4s * 4}")
    return f"table[{slot // 4}].{'xyzw'[slot % 4]}"


def _block(block: Block, indent: str, e: Expressions, names: Names) -> Iterator[str]:
    for statement in block:
        match statement:
            case Let(target, value):
                text = e.scalar(value) if isinstance(value, Scalar) else e.index(value)
                yield f"{indent}let {names.of(target.name)} = {text};"
            case Register(name, _, (value,)):
                yield f"{indent}var {names.of(name)} = {e.scalar(value)};"
            case Register(name, dtype, values):
                kind = f"array<{TYPES[dtype]}, {len(values)}>"
                yield f"{indent}var {names.of(name)} = {kind}({', '.join(map(e.scalar, values))});"
            case Assign(target, Binary("add", a, b)) if a == target:
                yield f"{indent}{e.scalar(target)} += {e.scalar(b)};"
            case Assign(target, value):
                yield f"{indent}{e.scalar(target)} = {e.scalar(value)};"
            case Store(buffer, index, value):
                yield f"{indent}{names.of(buffer)}[{e.index(index)}] = {e.scalar(value)};"
            case For(var, start, stop, step, body):
                name = names.of(var.name)
                one = as_int(step) == 1
                advance = f"{name}++" if one else f"{name} += {e.index(step)}"
                yield f"{indent}for (var {name} = {e.index(start)}; {name} < {e.index(stop)}; {advance}) {{"
                yield from _block(body, indent + "  ", e, names)
                yield f"{indent}}}"
            case If(condition, body):
                text = e.scalar(condition)
                if len(body) == 1 and isinstance(body[0], If):
                    while len(body) == 1 and isinstance(body[0], If):
                        text += f" && {e.scalar(body[0].condition)}"
                        body = body[0].body
                    text = f"({text})"
                yield f"{indent}if {text} {{"
                yield from _block(body, indent + "  ", e, names)
                yield f"{indent}}}"
            case Barrier():
                yield f"{indent}workgroupBarrier();"
