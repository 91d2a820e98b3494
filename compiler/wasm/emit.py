"""Kernels as C functions, and a module of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import WebrelaxError
from ..schedule.kernel import GROUP, Assign, Barrier, Block, For, If, Kernel, Let, Register, Store
from ..schedule.nodes import VECTORS
from ..schedule.optimize import optimize
from ..schedule.walk import variables_read
from ..source import KernelSource
from ..symbolic import Var, as_int
from ..tir import Binary, Scalar
from ..wgsl.names import Names
from .expression import TYPES, CExpressions

_HERE = Path(__file__).parent
# What generated kernels use, and what the library's do.
SHARED = (_HERE / "prelude.c", *sorted((_HERE / "library").glob("*.c")))


def module_source(kernels: Iterable[KernelSource]) -> str:
    """One C file of kernels, exported as k0, k1, ... in their order."""
    texts = [kernel.text.replace("KERNEL(", f"KERNEL(k{at}, ", 1) for at, kernel in enumerate(kernels)]
    return "\n".join([*(path.read_text("utf-8") for path in SHARED), *texts])


def emit(kernel: Kernel, slots: Mapping[Var, int]) -> KernelSource:
    """The C function of a kernel whose symbols stand in these slots of the table.

    It runs the workgroups `first` to `last` - 1, counted in the order x, y, z; each has one thread.
    Raises WebrelaxError for a kernel with more threads, and if a symbol has no slot.
    """
    if kernel.workgroup != (1, 1, 1):
        raise WebrelaxError(f"kernel {kernel.name} has {kernel.workgroup} threads a workgroup, a CPU has one")
    kernel = optimize(kernel)
    names = Names()
    expressions = CExpressions(names)
    for word in ("buffers", "table", "grid_x", "grid_y", "first", "last", "group"):
        names.of(word)
    lines = [f"KERNEL({names.of(kernel.name)}) {{"]
    for at, binding in enumerate(kernel.bindings):
        element = TYPES[VECTORS[binding.buffer.dtype] if binding.vector else binding.buffer.dtype]
        mode = "" if binding.writable else "const "
        lines.append(f"  {mode}{element} *restrict {names.of(binding.buffer.name)} = buffers[{at}];")
    used = variables_read(kernel.body)
    for symbol in kernel.symbols:
        if symbol.name in used:
            if symbol not in slots:
                raise WebrelaxError(f"kernel {kernel.name}: symbol {symbol.name} has no slot in the table")
            lines.append(f"  const int {names.of(symbol.name)} = table[{slots[symbol]}];")
    lines.append("  for (int group = first; group < last; group++) {")
    flat = all(as_int(size) == 1 for size in kernel.grid[1:])
    places = ("group" if flat else "group % grid_x", "group / grid_x % grid_y", "group / grid_x / grid_y")
    for place, text in zip(GROUP, places, strict=True):
        if place.name in used:
            lines.append(f"    const int {names.of(place.name)} = {text};")
    if "lane" in used:
        lines.append(f"    const int {names.of('lane')} = 0;")
    text = "\n".join([*lines, *_block(kernel.body, "    ", expressions, names), "  }", "}"]) + "\n"
    access = tuple("read_write" if b.writable else "read" for b in kernel.bindings)
    return KernelSource(kernel.name, names.of(kernel.name), text, kernel.workgroup, access)


def _block(block: Block, indent: str, e: CExpressions, names: Names) -> Iterator[str]:
    for statement in block:
        match statement:
            case Let(target, value):
                kind = TYPES[value.dtype] if isinstance(value, Scalar) else "int"
                text = e.scalar(value) if isinstance(value, Scalar) else e.index(value)
                yield f"{indent}const {kind} {names.of(target.name)} = {text};"
            case Register(name, dtype, (value,)):
                yield f"{indent}{TYPES[dtype]} {names.of(name)} = {e.scalar(value)};"
            case Register(name, dtype, values):
                parts = ", ".join(map(e.scalar, values))
                yield f"{indent}{TYPES[dtype]} {names.of(name)}[{len(values)}] = {{{parts}}};"
            case Assign(target, Binary("add", a, b)) if a == target:
                yield f"{indent}{e.scalar(target)} += {e.scalar(b)};"
            case Assign(target, value):
                yield f"{indent}{e.scalar(target)} = {e.scalar(value)};"
            case Store(buffer, index, value):
                yield f"{indent}{names.of(buffer)}[{e.index(index)}] = {e.scalar(value)};"
            case For(var, start, stop, step, body):
                name = names.of(var.name)
                advance = f"{name}++" if as_int(step) == 1 else f"{name} += {e.index(step)}"
                yield f"{indent}for (int {name} = {e.index(start)}; {name} < {e.index(stop)}; {advance}) {{"
                yield from _block(body, indent + "  ", e, names)
                yield f"{indent}}}"
            case If(condition, body):
                yield f"{indent}if ({e.scalar(condition)}) {{"
                yield from _block(body, indent + "  ", e, names)
                yield f"{indent}}}"
            case Barrier():
                raise WebrelaxError("a barrier has no meaning for one thread")
