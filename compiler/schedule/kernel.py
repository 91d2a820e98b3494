"""The kernel IR: what one workgroup's threads do, over flat buffers.

Integers (indices, bounds, grids) are symbolic expressions over the symbols, GROUP, the lane and the loops' variables.
Values are tir's scalar nodes plus the few below. A `Load` has one index, which counts elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..symbolic import Expr, Var
from ..tir import Buffer, Scalar
from .nodes import Element, Local

GROUP = (Var("group_x"), Var("group_y"), Var("group_z"))  # the workgroup's place in the grid


def lane(size: int) -> Var:
    """The thread's place in a workgroup of `size` threads."""
    return Var("lane", 0, size - 1)


@dataclass(frozen=True, slots=True)
class Let:
    """Names a value (a Local) or an integer (a Var, from an expression or an i32 scalar)."""

    target: Local | Var
    value: Scalar | Expr


@dataclass(frozen=True, slots=True)
class Register:
    """Declares a mutable variable; with `values`, more than one of them, an array of that size."""

    name: str
    type: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Sets a register or an element of an array."""

    target: Local | Element
    value: Scalar


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value."""

    buffer: str
    index: Expr
    value: Scalar


@dataclass(frozen=True, slots=True)
class For:
    """for var = start; var < stop; var += step."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Runs the body where the condition holds."""

    condition: Scalar
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the workgroup, in uniform control flow, wait for each other and see its memory as written."""


Statement = Let | Register | Assign | Store | For | If | Barrier
Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A storage buffer of the kernel, in the order of @binding(1), (2), ... A `vector` one is read by four elements."""

    buffer: Buffer
    writable: bool
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """An array in workgroup memory."""

    name: str
    type: str
    size: int

    @property
    def bytes(self) -> int:
        return self.size * (16 if self.type == "vec4" else 4)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A scheduled program. Bindings: the program's inputs, then its outputs; an in-place output is its input's."""

    name: str
    bindings: tuple[Binding, ...]
    symbols: tuple[Var, ...]
    workgroup: tuple[int, int, int]
    grid: tuple[Expr, Expr, Expr]
    shared: tuple[Shared, ...]
    body: Block

    def __str__(self) -> str:
        params = ", ".join(f"{'mut ' if b.writable else ''}{b.buffer}" for b in self.bindings)
        head = f"kernel {self.name}({params}; {', '.join(s.name for s in self.symbols)})"
        lines = [head, f"    grid {' x '.join(map(str, self.grid))}, workgroup {' x '.join(map(str, self.workgroup))}"]
        lines += [f"    shared {s.name}: {s.type}[{s.size}]" for s in self.shared]
        return "\n".join([*lines, *_print(self.body, "    ")]) + "\n"


def _print(block: Block, indent: str) -> Iterator[str]:
    for statement in block:
        match statement:
            case Let(target, value):
                yield f"{indent}let {target} = {value}"
            case Register(name, dtype, values):
                yield f"{indent}var {name}: {dtype} = {', '.join(map(str, values))}"
            case Assign(target, value):
                yield f"{indent}{target} = {value}"
            case Store(buffer, index, value):
                yield f"{indent}{buffer}[{index}] = {value}"
            case For(var, start, stop, step, body):
                yield f"{indent}for {var} in {start} .. {stop} step {step}:"
                yield from _print(body, indent + "    ")
            case If(condition, body):
                yield f"{indent}if {condition}:"
                yield from _print(body, indent + "    ")
            case Barrier():
                yield f"{indent}barrier"
