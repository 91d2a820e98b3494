"""One workgroup a row: softmax, RMSNorm, row sums.

Every stage runs over the same leading "row" axes; reductions run over what is behind them, pointwise stages may read
the results of the row. The stages run one after the other; a row's results stay in registers, whatever else is local
is computed again.
"""

from __future__ import annotations

from ..symbolic import Expr, as_expr, as_int, is_multiple_of, upper_bound
from ..target import Target
from ..tir import Axis, Program, Scalar, Stage
from .body import Body, accumulate, below, start, workgroup_reduce
from .kernel import Kernel, lane
from .lower import Reader, Values, at_point, finish, flatten, launch, product, taken_names, unflatten


def is_rows(program: Program) -> bool:
    """Whether all reductions have the same spatial axes and all stages start with axes of those extents."""
    rows = _rows(program)
    if rows is None:
        return False
    extents = [a.extent for a in rows]
    for stage in program.stages:
        own = [a.extent for a in stage.spatial]
        if not stage.is_pointwise or own[: len(rows)] != extents or (stage.reducer and len(own) != len(rows)):
            return False
    return _reads_own_row(program, len(rows))


def _rows(program: Program) -> tuple[Axis, ...] | None:
    return next((stage.spatial for stage in program.stages if stage.reducer), None)


def _reads_own_row(program: Program, rank: int) -> bool:
    """Whether what the program computed, or overwrites, is read in the same row only.

    An output is read back from memory, by the thread that wrote it. An input that is overwritten is read by reductions
    before that (a barrier lies between), and by the stage that overwrites it at the same place.
    """
    computed = {name for stage in program.stages for name in stage.outputs}
    outputs = {b.name for b in program.outputs}
    overwrites = dict(program.in_place)
    gone: set[str] = set()
    for stage in program.stages:
        row = tuple(a.var for a in stage.spatial[:rank])
        point = tuple(a.var for a in (*stage.spatial, *stage.reduce))
        for load in stage.loads():
            overwritten = load.buffer in overwrites.values()
            if (load.buffer in computed or overwritten) and load.indices[:rank] != row:
                return False
            if load.buffer in outputs and load.indices not in (row, point):
                return False
            if load.buffer in gone or (overwritten and not stage.reducer and load.indices != point):
                return False
        gone.update(overwrites[name] for name in stage.outputs if name in overwrites)
    return not gone or not _reads_late(program, gone)


def _reads_late(program: Program, gone: set[str]) -> bool:
    """Whether a local that reads an overwritten input is computed again, by a stage that may come too late."""
    outputs = {b.name for b in program.outputs}
    pointwise = [s for s in program.stages if not s.reducer and not any(name in outputs for name in s.outputs)]
    return any(load.buffer in gone for stage in pointwise for load in stage.loads())


def schedule_rows(program: Program, target: Target) -> Kernel:
    """The one-workgroup-a-row kernel."""
    rows = _rows(program)
    assert rows is not None
    extents = [a.extent for a in rows]
    threads, unrolled = _threads(program, len(rows), target), _unrolled(program, len(rows))
    body = Body(taken_names(program))
    thread = lane(threads)
    grid, number, conditions = launch(product(extents), target)
    outputs = {b.name for b in program.outputs}
    with body.when(*conditions):
        high = upper_bound(product(extents))
        row = (
            number if as_int(number) is not None else body.let_index("row", number, None if high is None else high - 1)
        )
        where = unflatten(row, extents)
        values = Values(program, body)
        for stage in program.stages:
            if stage.reducer:
                results = _reduce(body, values, stage, where, thread, threads, unrolled)
            elif len(stage.spatial) == len(rows):
                results = [body.let("value", values.scalar(v, at_point(stage.spatial, where))) for v in stage.values]
            else:
                _sweep(body, values, stage, where, thread, threads, unrolled, outputs)
                continue
            for name, result in zip(stage.outputs, results, strict=True):
                if name in outputs:
                    with body.when(below(thread, 1)):
                        body.store(name, flatten(where, extents), result)
                values.held[name] = _constant(result)
    return finish(program, body, threads, grid)


def _constant(result: Scalar) -> Reader:
    return lambda indices: result


def _threads(program: Program, rank: int, target: Target) -> int:
    """A power of two that leaves a thread some eight fours of the longest row: a barrier costs more than a load."""
    longest = 1
    for stage in program.stages:
        columns = upper_bound(product([a.extent for a in (*stage.spatial[rank:], *stage.reduce)]))
        longest = max(longest, target.workgroup_invocations * 2 if columns is None else columns)
    threads = min(32, target.workgroup_invocations)
    while threads * 64 <= longest and threads * 2 <= target.workgroup_invocations:
        threads *= 2
    return threads


def _unrolled(program: Program, rank: int) -> int:
    """Neighbouring columns that a thread takes at once, so that they are loaded as a vector; the same in all stages."""
    columns = [axes[-1].extent for s in program.stages if (axes := (*s.spatial[rank:], *s.reduce))]
    return 4 if all(is_multiple_of(extent, 4) for extent in columns) else 1


def _reduce(
    body: Body, values: Values, stage: Stage, row: list[Expr], thread: Expr, threads: int, unrolled: int
) -> list[Scalar]:
    assert stage.reducer is not None
    registers = start(body, stage.reducer)
    extents = [a.extent for a in stage.reduce]
    with body.loop("j", thread, product(extents) // unrolled, threads) as j:
        for u in range(unrolled):
            mapping = {**at_point(stage.spatial, row), **at_point(stage.reduce, unflatten(j * unrolled + u, extents))}
            accumulate(body, stage.reducer, registers, [values.scalar(v, mapping) for v in stage.values])
    totals = workgroup_reduce(body, stage.reducer, registers, thread, as_expr(0), threads, 1)
    return [body.let("result", total) for total in totals]


def _sweep(
    body: Body,
    values: Values,
    stage: Stage,
    row: list[Expr],
    thread: Expr,
    threads: int,
    unrolled: int,
    outputs: set[str],
) -> None:
    """A pointwise stage over the row, if anybody sees its result."""
    if not any(name in outputs for name in stage.outputs):
        return
    shape = [a.extent for a in stage.spatial]
    columns = shape[len(row) :]
    with body.loop("j", thread, product(columns) // unrolled, threads) as j:
        points = [[*row, *unflatten(j * unrolled + u, columns)] for u in range(unrolled)]
        results = [
            [body.let("value", values.scalar(v, at_point(stage.spatial, point))) for v in stage.values]
            for point in points
        ]
        for point, named in zip(points, results, strict=True):
            for name, result in zip(stage.outputs, named, strict=True):
                body.store(name, flatten(point, shape), result)
    for name in stage.outputs:
        # The thread that wrote an element is the one that reads it: columns go to threads the same way in every sweep.
        values.held[name] = _from_memory(values, name)


def _from_memory(values: Values, name: str) -> Reader:
    return lambda indices: values.load(name, indices)
