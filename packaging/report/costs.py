"""What one run of a tensor program costs: bytes read and written, and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ...compiler.symbolic import Expr, Var, as_expr, bounds, evaluate, substitute, variables
from ...compiler.tir import DTYPE_BYTES, Axis, Binary, Compare, Program, Select, Stage, Unary, nodes


@dataclass(frozen=True)
class Cost:
    """Bytes that a run must at least read and write, each element once, and the scalar operations it is made of."""

    read: int
    written: int
    operations: int


def cost(program: Program, symbols: Mapping[Var, int]) -> Cost:
    """The cost with these values of the program's symbols.

    Equal expressions of a stage count once, conversions and the arithmetic of indices not at all. Values that live
    inside the program move no bytes. What is read at indices that are data counts as if all were different.
    """
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    operations = 0
    for stage in program.stages:
        spatial, reduced = _extents(stage.spatial, symbols), _extents(stage.reduce, symbols)
        axes = {**spatial, **reduced}
        points = prod(axes.values())
        operations += points * _operations(stage)
        for buffer, indices in {(load.buffer, load.indices) for load in stage.loads()}:
            read[buffer] = read.get(buffer, 0) + _distinct(program, buffer, indices, axes, symbols)
        for buffer in stage.outputs:
            written[buffer] = written.get(buffer, 0) + _distinct(program, buffer, stage.indices, spatial, symbols)
    sources = dict(program.in_place)
    return Cost(
        sum(_bytes(program, b.name, read.get(b.name, 0), symbols) for b in program.inputs)
        # An output that is read back, and does not stand for an input.
        + sum(_bytes(program, b.name, read.get(b.name, 0), symbols) for b in program.outputs if b.name not in sources),
        sum(_bytes(program, b.name, written.get(b.name, 0), symbols) for b in program.outputs),
        operations,
    )


def _extents(axes: Sequence[Axis], symbols: Mapping[Var, int]) -> dict[Var, int]:
    return {axis.var: evaluate(axis.extent, symbols) for axis in axes}


def _operations(stage: Stage) -> int:
    """Scalar operations of one point, the combination of a reduction included."""
    found = {
        node for value in stage.values for node in nodes(value) if isinstance(node, Unary | Binary | Compare | Select)
    }
    return len(found) + (len(stage.values) if stage.reducer else 0)


def _distinct(
    program: Program, buffer: str, indices: Sequence[Expr], axes: Mapping[Var, int], symbols: Mapping[Var, int]
) -> int:
    """How many elements the indices reach: no more than there are points, nor values of each index."""
    if not all(axes.values()):
        return 0
    reached = 1
    ranges = {var: (0, extent - 1) for var, extent in axes.items()}
    values: dict[Expr, Expr | int] = {var: value for var, value in symbols.items()}  # noqa: C416 - it widens the types
    for index, extent in zip(indices, program.buffer(buffer).shape, strict=True):
        fixed = substitute(index, values)
        own = {v: r for v, r in ranges.items() if v in variables(fixed)}
        low, high = bounds(fixed, own)
        size = evaluate(as_expr(extent), symbols)
        options = [size, prod(axes[v] for v in own)]
        if low is not None and high is not None:
            options.append(high - low + 1)
        reached *= min(options)
    used = {v for index in indices for v in variables(index) if v in axes}
    return min(reached, prod(axes[v] for v in used))


def _bytes(program: Program, name: str, elements: int, symbols: Mapping[Var, int]) -> int:
    buffer = program.buffer(name)
    return min(elements * DTYPE_BYTES[buffer.dtype], evaluate(buffer.size, symbols))
