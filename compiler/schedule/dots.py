"""Long sums: GEMV, with the decode of its weights and whatever is pointwise around it; attention; row sums.

A thread has `each` outputs along the last axis and loads the vector once for all of them. Where that alone does not
keep a GPU busy, `across` threads share a sum, and one of them adds up what they found. Neighbouring threads read
neighbouring memory: along the sum, or along the outputs where that is how the larger operand lies. Several sums over
the same positions (gate and up) run side by side: each position is visited once for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..symbolic import Expr, Var, as_expr, ceildiv, is_multiple_of, upper_bound
from ..target import Target
from ..tir import Program, Reducer, Scalar
from .body import Body, accumulate, below, combine, start
from .contraction import Contraction, Term, contraction, finish_point, is_contiguous
from .kernel import Kernel, lane
from .limits import check_own_points
from .linear import Run
from .lower import finish, launch, product, taken_names, unflatten
from .nodes import Element, Local
from .runs import runs

ALONE, TOGETHER = 64, 32  # threads of a workgroup: those that wait for each other are better one SIMD group
MOST_ACROSS = 16
WORTH_A_THREAD = 1024  # products: fewer, and starting threads and waiting for them takes longer than the work


def is_dots(program: Program) -> bool:
    """Reductions over the whole of a nonempty domain."""
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

    def slot(self, own: Expr, at: int) -> Expr:
        """The place of a thread's output among those of the workgroup: neighbours in memory belong to one thread."""
        return own * self.each + at if self.along_outputs else own + at * self.out


def _choose(found: Contraction, target: Target) -> _Shape:
    inner, outer = runs(found, found.values)
    along_outputs = is_contiguous(found, found.values, found.axes[-1].var)
    outputs = upper_bound(product(a.extent for a in found.axes)) or target.parallel_threads
    length = upper_bound(found.length)
    longest = target.parallel_threads if length is None else length
    wanted = max(1, min(outputs * longest * len(found.terms) // WORTH_A_THREAD, 8 * target.parallel_threads))
    most = min(MOST_ACROSS, power_of_two(longest // max(outer, 4)))
    each = min(4, power_of_two(outputs * most // wanted), power_of_two(outputs))
    products = max(1, target.unrolled_products // len(found.terms))
    each = power_of_two(min(each // len(found.terms), products * 4 // inner))
    if inner == 4 and products >= each * 4 and (outer == 4 or outer % 16 == 0) and is_multiple_of(found.length, 16):
        # Where four positions are one word, four words are one load.
        inner, outer = 16, max(outer, 16)
    across = min(most, power_of_two(wanted * each * 4 // 3 // outputs))
    chunks = None if length is None else -(-length // outer)
    while chunks is not None and across > 1 and chunks * 4 < -(-chunks // across) * across * 3:
        across //= 2  # too many threads would have nothing to do in the last round
    threads = min(ALONE if across == 1 else TOGETHER, target.workgroup_invocations)
    width = upper_bound(found.axes[-1].extent) or threads * each
    if along_outputs:
        out = min(threads // across, power_of_two(2 * width // each - 1))
        across = min(most, threads // out)
    else:
        out = threads // across
        each = min(each, power_of_two(2 * width // out - 1))
    return _Shape(out, across, each, inner, outer, along_outputs)


def power_of_two(most: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(most.bit_length() - 1, 0)


def schedule_dots(program: Program, target: Target) -> Kernel:
    """The kernel of a program for which `is_dots` holds."""
    found = contraction(program)
    assert found is not None
    shape = _choose(found, target)
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
        registers = [[start(body, term.reducer) for term in found.terms] for _ in range(shape.each)]
        rows = [body.let_index("o", first + shape.slot(own, r), most) for r in range(shape.each)]
        _sum(body, found, shape, [{**place, last.var: row} for row in rows], rows, part, registers)
        if shape.across == 1:
            for row, sums in zip(rows, registers, strict=True):
                with body.when(below(row, last.extent)):
                    finish_point(body, program, found, {**place, last.var: row}, sums)
        else:
            slots = [shape.slot(own, r) for r in range(shape.each)]
            arrays = _gather(body, shape, registers, slots, part)
            with body.loop("slot", thread, shape.outputs, shape.threads) as slot:
                row = body.let_index("row", first + slot, most)
                with body.when(below(row, last.extent)):
                    totals = [
                        _total(body, term.reducer, shape, own_arrays, like, slot)
                        for term, own_arrays, like in zip(found.terms, arrays, registers[0], strict=True)
                    ]
                    finish_point(body, program, found, {**place, last.var: row}, totals)
    return check_own_points(finish(program, body, shape.threads, grid), program)


def _sum(
    body: Body,
    found: Contraction,
    shape: _Shape,
    points: list[dict[Expr, Expr | int]],
    rows: list[Var],
    part: Expr,
    into: list[list[list[Local]]],
) -> None:
    """Accumulates a thread's share of the sums at the points."""
    pairs = [(p, t, r) for p, own in zip(points, into, strict=True) for t, r in zip(found.terms, own, strict=True)]
    sums = [(p, t, r) for p, t, r in pairs if t.reducer.name == "sum" and t.values[0].dtype == "f32"]
    others = [each for each in pairs if each not in sums]

    def step(k: Expr, chosen: list[tuple[dict[Expr, Expr | int], Term, list[Local]]]) -> None:
        for point, term, registers in chosen:
            accumulate(body, term.reducer, registers, [found.at(v, point, k) for v in term.values])

    inner, outer = (4, 4) if shape.inner < 4 else (shape.inner, shape.outer)
    run = Run(body, inner, outer, rows)
    with body.loop("c", part, found.length // outer, shape.across) as c:
        for u in range(outer if others else 0):
            step(c * outer + u, others)
        run.add([(r[0], partial(found.at, t.values[0], p)) for p, t, r in sums], c * outer)
    if not is_multiple_of(found.length, outer):
        with body.loop("k", found.length // outer * outer + part, found.length, shape.across) as k:
            step(k, pairs)


def _gather(
    body: Body, shape: _Shape, registers: list[list[list[Local]]], slots: list[Expr], part: Expr
) -> list[list[str]]:
    """Puts all partial results into workgroup memory, those of one output `outputs` elements apart."""
    size = shape.across * shape.outputs
    arrays = [[body.shared_array("parts", value.type, size) for value in own] for own in registers[0]]
    for row, slot in zip(registers, slots, strict=True):
        for names, values in zip(arrays, row, strict=True):
            for array, value in zip(names, values, strict=True):
                body.assign(Element(array, part * shape.outputs + slot, value.type), value)
    body.barrier()
    return arrays


def _total(
    body: Body, reducer: Reducer, shape: _Shape, arrays: list[str], like: list[Local], slot: Expr
) -> list[Scalar]:
    """The combination of one output's partial results."""
    parts = [
        [Element(array, as_expr(slot + p * shape.outputs), r.type) for array, r in zip(arrays, like, strict=True)]
        for p in range(shape.across)
    ]
    if len(like) == 1:
        total: list[Scalar] = list(parts[0])
        for part in parts[1:]:
            total = combine(reducer, total, part)
        return [body.let("total", total[0])]
    registers = [body.register("total", first) for first in parts[0]]
    for part in parts[1:]:
        accumulate(body, reducer, registers, part)
    return list(registers)
