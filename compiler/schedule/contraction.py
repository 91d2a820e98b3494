"""What GEMV and GEMM share: reductions over the same points, pointwise stages before and, at these points, behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..symbolic import (
    Expr,
    Var,
    as_expr,
    as_int,
    prove_equal,
    substitute,
    upper_bound,
    variables,
)
from ..tir import Axis, Program, Reducer, Scalar, Stage, loads, substitute_scalar
from .body import Body
from .lower import Reader, Values, at_point, flatten, product, taken_names, unflatten

MOST_CHOICES = 16  # entries of a table that a thread keeps in registers


@dataclass(frozen=True, slots=True)
class Term:
    """One reduction. `values` are what it reduces, resolved, over the variables of the contraction's axes and `k`."""

    stage: Stage
    reducer: Reducer
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """A program's reductions, which do not read each other and run over the same points.

    `axes` are the spatial axes of more than one element. `k` counts the reduced points, flat, below `length`.
    """

    terms: tuple[Term, ...]
    axes: tuple[Axis, ...]
    k: Var
    length: Expr

    @property
    def values(self) -> tuple[Scalar, ...]:
        """What is reduced, of all terms."""
        return tuple(value for term in self.terms for value in term.values)

    def at(self, node: Scalar, point: Mapping[Expr, Expr | int], k: Expr) -> Scalar:
        """A resolved expression at a point (of the axes) and a position of the reduction."""
        return substitute_scalar(node, {**point, self.k: k})

    def full_point(self, point: Mapping[Expr, Expr | int], stage: Stage) -> list[Expr]:
        """The indices of a reduction's result at a point of `axes`."""
        inner = iter(self.axes)
        return [as_expr(0) if as_int(a.extent) == 1 else as_expr(point[next(inner).var]) for a in stage.spatial]

    def stride(self, index: Expr, var: Var) -> int | None:
        """By how many elements a flat index grows with a variable; None if not always by the same."""
        if var not in variables(index):
            return 0
        probe = Var("probe", None, None)
        return as_int(substitute(index, {var: probe + 1}) - substitute(index, {var: probe}))


class _Misaligned(Exception):
    pass


def contraction(program: Program) -> Contraction | None:
    """The program as reductions over the same points with pointwise company, None if it is something else."""
    stages = [s for s in program.stages if s.reducer]
    if not stages or not all(stage.is_pointwise for stage in stages):
        return None
    axes, *others = ([a for a in stage.spatial if as_int(a.extent) != 1] for stage in stages)
    length, *lengths = (product(a.extent for a in stage.reduce) for stage in stages)
    if any(not _same_extents(axes, other) for other in others) or not all(prove_equal(length, e) for e in lengths):
        return None
    high = upper_bound(length)
    body = Body(taken_names(program))
    k = Var(body.name("k"), 0, None if high is None else max(high - 1, 0))
    values = Values(program, body, on_reduction=_misaligned, choices=MOST_CHOICES)
    try:
        terms = tuple(_term(values, stage, axes, k) for stage in stages)
        found = Contraction(terms, tuple(axes), k, length)
        if body.finish():
            return None
        _check_company(program, found)
    except _Misaligned:
        return None
    return found


def _same_extents(a: Sequence[Axis], b: Sequence[Axis]) -> bool:
    return len(a) == len(b) and all(prove_equal(x.extent, y.extent) for x, y in zip(a, b, strict=True))


def _misaligned(stage: Stage, indices: tuple[Expr, ...]) -> Scalar:
    raise _Misaligned


def _term(values: Values, stage: Stage, axes: Sequence[Axis], k: Var) -> Term:
    assert stage.reducer is not None
    point = at_point(stage.reduce, unflatten(k, [a.extent for a in stage.reduce]))
    inner = iter(axes)
    point.update({a.var: 0 if as_int(a.extent) == 1 else next(inner).var for a in stage.spatial})
    return Term(stage, stage.reducer, tuple(values.scalar(v, point) for v in stage.values))


def _check_company(program: Program, found: Contraction) -> None:
    """Raises _Misaligned unless all outputs are computed at the points of the reductions, from their results there."""
    extents = [a.extent for a in found.axes]
    total = product(extents)
    outputs = {b.name for b in program.outputs}
    for stage in program.stages:
        own = product(a.extent for a in stage.spatial)
        if any(name in outputs for name in stage.outputs) and not prove_equal(own, total):
            raise _Misaligned
    point: dict[Expr, Expr | int] = {a.var: a.var for a in found.axes}
    flat = flatten([a.var for a in found.axes], extents)

    def reader(stage: Stage, value: Scalar) -> Reader:
        def read(indices: tuple[Expr, ...]) -> Scalar:
            if not prove_equal(flatten(indices, [a.extent for a in stage.spatial]), flat):
                raise _Misaligned
            return value

        return read

    held = {
        name: reader(term.stage, value)
        for term in found.terms
        for name, value in zip(term.stage.outputs, term.values, strict=True)
    }
    for _ in _stores(Values(program, Body(), held), found, point):
        pass


def finish_point(
    body: Body,
    program: Program,
    found: Contraction,
    point: Mapping[Expr, Expr | int],
    results: Sequence[Sequence[Scalar]],
) -> None:
    """Stores all outputs at a point, the results of every reduction being known there."""
    values = Values(program, body)
    for term, known in zip(found.terms, results, strict=True):
        for name, result in zip(term.stage.outputs, known, strict=True):
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
    like = found.terms[0].stage
    full = found.full_point(point, like)
    extents = [a.extent for a in like.spatial]
    for stage in program.stages:
        if not any(name in outputs for name in stage.outputs):
            continue
        own = [a.extent for a in stage.spatial]
        at = full if own == extents else unflatten(flatten(full, extents), own)
        mapping = at_point(stage.spatial, at)
        where = [values.index(substitute(i, mapping)) for i in stage.indices]
        for name, value in zip(stage.outputs, stage.values, strict=True):
            result = values.held[name](tuple(at)) if stage.reducer else values.scalar(value, mapping)
            yield name, flatten(where, program.buffer(name).shape), result


def is_contiguous(found: Contraction, nodes: Sequence[Scalar], var: Var) -> bool:
    """Whether neighbours along `var`, and not those along k, are neighbours in memory, where a load depends on both."""
    return any(
        found.stride(index, var) == 1 and found.stride(index, found.k) != 1
        for node in nodes
        for load in loads(node)
        for index in load.indices
        if found.k in variables(index)
    )
