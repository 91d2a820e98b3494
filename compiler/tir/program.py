"""Loop-level tensor programs: stages over rectangular symbolic domains, in destination-passing style."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..symbolic import Expr, Var, as_expr, variables
from .scalar import DTYPE_BYTES, Literal, Load, Scalar, loads, opaque_loads, scalar_variables


@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array. `shape` may be symbolic; `dtype` is one of DTYPE_BYTES."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def size(self) -> Expr:
        """Bytes."""
        total = as_expr(DTYPE_BYTES[self.dtype])
        for extent in self.shape:
            total = total * extent
        return total


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: `var` counts from 0 to extent - 1."""

    var: Var
    extent: Expr

    def __str__(self) -> str:
        return f"{self.var} < {self.extent}"


@dataclass(frozen=True, slots=True)
class Reducer:
    """An associative and commutative combination of one value ("sum", "max", "min") or of a tuple.

    "argmax" takes (value, index) and keeps the pair of the largest value, the first of equals. `identities` has one
    literal for each value, of its type.
    """

    name: str
    identities: tuple[Literal, ...]


# No infinities: WGSL may assume that they do not occur.
LOWEST = -3.4028234663852886e38
SUM = Reducer("sum", (Literal(0.0, "f32"),))
MAX = Reducer("max", (Literal(LOWEST, "f32"),))
ARGMAX = Reducer("argmax", (Literal(LOWEST, "f32"), Literal(0, "i32")))


@dataclass(frozen=True, slots=True)
class Stage:
    """`outputs[...][indices] = values` for all spatial points, or a reduction of the values over the `reduce` axes.

    The store map `indices` is usually the spatial variables themselves; affine, modular or loaded indices make a
    scatter, whose points must be distinct. Elements that no point stores keep what was there.
    """

    outputs: tuple[str, ...]
    spatial: tuple[Axis, ...]
    indices: tuple[Expr, ...]
    values: tuple[Scalar, ...]
    reduce: tuple[Axis, ...] = ()
    reducer: Reducer | None = None

    def loads(self) -> Iterator[Load]:
        """All loads of the values and of the store map."""
        for value in self.values:
            yield from loads(value)
        for index in self.indices:
            yield from opaque_loads(index)

    @property
    def is_pointwise(self) -> bool:
        """Whether each spatial point stores to its own indices, in order."""
        return self.indices == tuple(axis.var for axis in self.spatial)


@dataclass(frozen=True, slots=True)
class Program:
    """A tensor program. The buffers of `inputs` are read, those of `outputs` written; `locals` live inside.

    `symbols` are the shape variables that it needs, in the order of a call's symbolic arguments.
    `in_place` pairs (output, input): the output is that input's memory, changed.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    locals: tuple[Buffer, ...] = ()
    symbols: tuple[Var, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name. Raises KeyError."""
        for buffer in (*self.inputs, *self.outputs, *self.locals):
            if buffer.name == name:
                return buffer
        raise KeyError(f"{self.name} has no buffer {name}")

    def __str__(self) -> str:
        return print_program(self)


def free_symbols(program: Program) -> tuple[Var, ...]:
    """The shape variables that a program's loops and shapes use, sorted by name: what `symbols` must contain."""
    found: set[Var] = set()
    for buffer in (*program.inputs, *program.outputs, *program.locals):
        found.update(v for extent in buffer.shape for v in variables(extent))
    for stage in program.stages:
        inner = {axis.var for axis in (*stage.spatial, *stage.reduce)}
        used = {v for axis in (*stage.spatial, *stage.reduce) for v in variables(axis.extent)}
        used.update(v for index in stage.indices for v in variables(index))
        for value in stage.values:
            used.update(scalar_variables(value))
        found.update(used - inner)
    return tuple(sorted(found, key=lambda v: v.name))


def print_program(program: Program) -> str:
    """Readable text, the same for equal programs."""
    params = ", ".join(map(str, (*program.inputs, *program.symbols)))
    results = ", ".join(map(str, program.outputs))
    lines = [f"program {program.name}({params}) -> ({results}):"]
    lines += [f"    {out} overwrites {src}" for out, src in program.in_place]
    lines += [f"    local {buffer}" for buffer in program.locals]
    for stage in program.stages:
        loops = ", ".join(map(str, stage.spatial))
        lines.append(f"    for {loops}:" if loops else "    once:")
        targets = ", ".join(f"{name}[{', '.join(map(str, stage.indices))}]" for name in stage.outputs)
        values = ", ".join(map(str, stage.values))
        if stage.reducer:
            over = ", ".join(map(str, stage.reduce))
            lines.append(f"        {targets} = {stage.reducer.name} over ({over}) of {values}")
        else:
            lines.append(f"        {targets} = {values}")
    return "\n".join(lines) + "\n"
