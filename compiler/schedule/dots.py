"""Long sums: GEMV, with the decode of its weights and whatever is pointwise around it; attention; row sums.

The threads of a workgroup share `out` neighbouring outputs along the last axis, `across` of them work on one sum and
then one of them adds up what they found. Neighbouring threads read neighbouring memory: along the sum, or along the
outputs where that is how the larger operand lies. A thread with several outputs reads the vector once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..symbolic import Expr, as_expr, as_int, ceildiv, upper_bound
from ..target import Target
from ..tir import Program, Scalar
from .body import Body, accumulate, below, combine, start
from .contraction import Contraction, contraction, finish_point, is_contiguous, runs
from .kernel import Element, Kernel, Local, lane
from .limits import check_own_points
from .lower import finish, launch, product, taken_names, unflatten


def is_dots(program: Program) -> bool:
    """One reduction over the whole of a nonempty domain."""
    found = contraction(program)
    return found is not None and bool(found.axes)


@dataclass(frozen=True, slots=True)
class _Shape:
    """out * across threads; each has `each` outputs and takes runs of `outer` positions, unrolled by `inner`."""

    out: int
    across: int
    each: int
    inner: int
    outer: int
    along_outputs: bool

    @property
    def threads(self) -> int:
        return self.out * self.across

    @property
    def outputs(self) -> int:
        return self.out * self.each


def _choose(found: Contraction) -> _Shape:
    inner, outer = runs(found, found.values)
    last = found.axes[-1]
    if is_contiguous(found, found.values, last.var):
        return _Shape(out=32, across=8, each=1, inner=1, outer=1, along_outputs=True)
    chunks = as_int(found.length // outer)
    across = 32
    if chunks is not None:
        across = next((a for a in (16, 8, 4, 2) if chunks / (-(-chunks // a) * a) >= 0.75), 1)
    outputs = upper_bound(last.extent)
    each = 4 if outputs is not None and outputs >= 512 else 1
    return _Shape(64 // across, across, min(each, across), inner, outer, along_outputs=False)


def schedule_dots(program: Program, target: Target) -> Kernel:
    """The kernel of a program for which `is_dots` holds."""
    found = contraction(program)
    assert found is not None
    assert found.stage.reducer is not None
    shape = _choose(found)
    body = Body(taken_names(program))
    *batch, last = found.axes
    columns = ceildiv(last.extent, shape.outputs)
    grid, number, conditions = launch(columns * product(a.extent for a in batch), target)
    thread = lane(shape.threads)
    if shape.along_outputs:
        own, part = thread % shape.out, thread // shape.out
    else:
        own, part = thread // shape.across, thread % shape.across
    with body.when(*conditions):
        first = body.let_index("first", number % columns * shape.outputs) if batch else number * shape.outputs
        where = unflatten(number // columns, [a.extent for a in batch])
        place: dict[Expr, Expr | int] = {a.var: index for a, index in zip(batch, where, strict=True)}
        high = upper_bound(last.extent)
        most = None if high is None else high - 1
        registers = [start(body, found.stage.reducer) for _ in range(shape.each)]
        rows = [body.let_index("o", first + own + r * shape.out, most) for r in range(shape.each)]
        with body.loop("c", part, ceildiv(found.length, shape.outer), shape.across) as c:
            _run(body, found, shape, [{**place, last.var: row} for row in rows], c, registers)
        if shape.across == 1:
            for row, sums in zip(rows, registers, strict=True):
                with body.when(below(row, last.extent)):
                    finish_point(body, program, found, {**place, last.var: row}, sums)
        else:
            slots = [own + r * shape.out for r in range(shape.each)]
            arrays = _gather(body, shape, registers, slots, part)
            row = body.let_index("row", first + thread, most)
            with body.when(below(thread, shape.outputs), below(row, last.extent)):
                total = _total(body, found, shape, arrays, registers[0], thread)
                finish_point(body, program, found, {**place, last.var: row}, total)
    return check_own_points(finish(program, body, shape.threads, grid), program)


def _run(
    body: Body,
    found: Contraction,
    shape: _Shape,
    points: list[dict[Expr, Expr | int]],
    c: Expr,
    into: list[list[Local]],
) -> None:
    """Accumulates run c of the sums at the points."""
    assert found.stage.reducer is not None

    def unrolled(first: Expr) -> None:
        for u in range(shape.inner):
            for point, registers in zip(points, into, strict=True):
                values = [found.at(v, point, first + u) for v in found.values]
                accumulate(body, found.stage.reducer, registers, values)  # type: ignore[arg-type]

    if shape.outer == shape.inner:
        unrolled(c * shape.inner)
    else:
        with body.loop("w", 0, shape.outer // shape.inner) as w:
            unrolled(c * shape.outer + w * shape.inner)


def _gather(body: Body, shape: _Shape, registers: list[list[Local]], slots: list[Expr], part: Expr) -> list[str]:
    """Puts all partial results into workgroup memory, those of one output `outputs` elements apart."""
    size = shape.across * shape.outputs
    arrays = [body.shared_array("parts", value.type, size) for value in registers[0]]
    for values, slot in zip(registers, slots, strict=True):
        for array, value in zip(arrays, values, strict=True):
            body.assign(Element(array, part * shape.outputs + slot, value.type), value)
    body.barrier()
    return arrays


def _total(
    body: Body, found: Contraction, shape: _Shape, arrays: list[str], like: list[Local], slot: Expr
) -> list[Scalar]:
    """The combination of one output's partial results."""
    assert found.stage.reducer is not None
    parts = [
        [Element(array, as_expr(slot + p * shape.outputs), r.type) for array, r in zip(arrays, like, strict=True)]
        for p in range(shape.across)
    ]
    if len(like) == 1:
        total: list[Scalar] = list(parts[0])
        for part in parts[1:]:
            total = combine(found.stage.reducer, total, part)
        return [body.let("total", total[0])]
    registers = [body.register("total", first) for first in parts[0]]
    for part in parts[1:]:
        accumulate(body, found.stage.reducer, registers, part)
    return list(registers)
