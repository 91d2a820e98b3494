"""What GEMV and GEMM have in common: one reduction, pointwise stages before it and, at its points, behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from ..symbolic import (
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Opaque,
    Var,
    as_expr,
    as_int,
    is_multiple_of,
    prove_equal,
    substitute,
    upper_bound,
    variables,
)
from ..tir import Axis, Program, Scalar, Stage, loads, substitute_scalar
from .body import Body
from .lower import Values, at_point, flatten, product, taken_names, unflatten
from .walk import expressions_in


@dataclass(frozen=True, slots=True)
class Contraction:
    """A program's only reduction. `values` are what it reduces, resolved, over the variables of `axes` and `k`.

    `axes` are the spatial axes of more than one element. `k` counts the reduced points, flat, below `length`.
    """

    stage: Stage
    values: tuple[Scalar, ...]
    axes: tuple[Axis, ...]
    k: Var
    length: Expr

    def at(self, node: Scalar, point: Mapping[Expr, Expr | int], k: Expr) -> Scalar:
        """A resolved expression at a point (of the axes) and a position of the reduction."""
        return substitute_scalar(node, {**point, self.k: k})

    def full_point(self, point: Mapping[Expr, Expr | int]) -> list[Expr]:
        """The indices of the reduction's result at a point of `axes`."""
        return [as_expr(point[a.var]) if a in self.axes else as_expr(0) for a in self.stage.spatial]

    def stride(self, index: Expr, var: Var) -> int | None:
        """By how many elements a flat index grows with a variable; None if not always by the same."""
        if var not in variables(index):
            return 0
        probe = Var("probe", None, None)
        return as_int(substitute(index, {var: probe + 1}) - substitute(index, {var: probe}))


def contraction(program: Program) -> Contraction | None:
    """The program as one reduction with pointwise company, None if it is something else."""
    reductions = [s for s in program.stages if s.reducer]
    if len(reductions) != 1 or not reductions[0].is_pointwise:
        return None
    (stage,) = reductions
    axes = tuple(a for a in stage.spatial if as_int(a.extent) != 1)
    length = product(a.extent for a in stage.reduce)
    high = upper_bound(length)
    body = Body(taken_names(program))
    k = Var(body.name("k"), 0, None if high is None else max(high - 1, 0))
    point: dict[Expr, Expr | int] = {a.var: 0 for a in stage.spatial if a not in axes}
    inside = at_point(stage.reduce, unflatten(k, [a.extent for a in stage.reduce]))
    values = tuple(Values(program, body).scalar(v, {**point, **inside}) for v in stage.values)
    found = Contraction(stage, values, axes, k, length)
    if body.finish() or not _company_is_aligned(program, found):
        return None
    return found


class _Misaligned(Exception):
    pass


def _company_is_aligned(program: Program, found: Contraction) -> bool:
    """Whether all outputs are computed at the points of the reduction, from its result at that point."""
    extents = [a.extent for a in found.stage.spatial]
    total = product(extents)
    outputs = {b.name for b in program.outputs}
    for stage in program.stages:
        own = product(a.extent for a in stage.spatial)
        if any(name in outputs for name in stage.outputs) and not prove_equal(own, total):
            return False
    point: dict[Expr, Expr | int] = {a.var: a.var for a in found.axes}
    flat = flatten(found.full_point(point), extents)

    def read(indices: tuple[Expr, ...]) -> Scalar:
        if not prove_equal(flatten(indices, extents), flat):
            raise _Misaligned
        return found.values[0]

    values = Values(program, Body(), dict.fromkeys(found.stage.outputs, read))
    try:
        for _ in _stores(values, found, point):
            pass
    except _Misaligned:
        return False
    return True


def finish_point(
    body: Body, program: Program, found: Contraction, point: Mapping[Expr, Expr | int], results: Sequence[Scalar]
) -> None:
    """Stores all outputs at a point, the reduction's results being known there."""
    values = Values(program, body)
    for name, result in zip(found.stage.outputs, results, strict=True):
        values.held[name] = lambda indices, result=result: result  # type: ignore[misc]
    outputs = {b.name for b in program.outputs}
    named = [
        (name, where, body.let("value", value))
        for name, where, value in _stores(values, found, point)
        if name in outputs
    ]
    for name, where, value in named:
        body.store(name, where, value)


def _stores(values: Values, found: Contraction, point: Mapping[Expr, Expr | int]) -> Iterator[tuple[str, Expr, Scalar]]:
    """(buffer, flat index, value) of every output at a point."""
    program = values.program
    outputs = {b.name for b in program.outputs}
    full = found.full_point(point)
    extents = [a.extent for a in found.stage.spatial]
    for stage in program.stages:
        if not any(name in outputs for name in stage.outputs):
            continue
        own = [a.extent for a in stage.spatial]
        at = full if own == extents else unflatten(flatten(full, extents), own)
        mapping = at_point(stage.spatial, at)
        where = [values.index(substitute(i, mapping)) for i in stage.indices]
        for name, value in zip(stage.outputs, stage.values, strict=True):
            result = values.held[name](tuple(at)) if stage is found.stage else values.scalar(value, mapping)
            yield name, flatten(where, program.buffer(name).shape), result


# --- how the reduced index is used ---


def runs(found: Contraction, nodes: Sequence[Scalar], most: int = 32) -> tuple[int, int]:
    """(inner, outer) run lengths of the reduced index, both dividing its range and `most`, inner dividing outer.

    Within an inner run the expressions differ only in places that are known when the run is unrolled: a packed word is
    loaded once a run. Within an outer run, the values of a quantization group stay the same.
    """
    periods = sorted({p for node in nodes for e in expressions_in(node) for p in _periods(e, found.k)})
    periods = [p for p in periods if p % 4 == 0 and most % p == 0 and is_multiple_of(found.length, p)]
    inner = next(iter(periods), None)
    if inner is None:
        inner = next((p for p in (4, 2) if is_multiple_of(found.length, p)), 1)
    outer = inner
    for period in periods:
        if period % outer == 0:
            outer = period
    return inner, outer


def _periods(expr: Expr, k: Var) -> Iterator[int]:
    """The divisors c of `(k + ...) // c` and `% c` inside an index."""
    match expr:
        case FloorDiv(a, b) | FloorMod(a, b):
            divisor = as_int(b)
            if divisor is not None and k in variables(a):
                step = as_int(
                    substitute(a, {k: Var("probe", None, None) + 1}) - substitute(a, {k: Var("probe", None, None)})
                )
                yield divisor // gcd(divisor, step) if step else divisor
            yield from _periods(a, k)
            yield from _periods(b, k)
        case Add(parts) | Mul(_, parts) | Min(parts) | Max(parts):
            for part in parts:
                yield from _periods(part, k)
        case Opaque(payload):
            assert isinstance(payload, Scalar)
            for inner in expressions_in(payload):
                yield from _periods(inner, k)


def is_contiguous(found: Contraction, nodes: Sequence[Scalar], var: Var) -> bool:
    """Whether neighbours along `var`, and not those along k, are neighbours in memory, where a load depends on both."""
    return any(
        found.stride(index, var) == 1 and found.stride(index, found.k) != 1
        for node in nodes
        for load in loads(node)
        for index in load.indices
        if found.k in variables(index)
    )
