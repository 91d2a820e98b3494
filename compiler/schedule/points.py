"""One thread a point: elementwise, injective and scatter programs, and the fallback for everything else.

A reduction is a serial loop in its thread; a local buffer is computed again wherever it is read. Slow for large
reductions, right for any program whose stages do not depend on a scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from ..symbolic import Expr, maximum, minimum, substitute, upper_bound
from ..target import Target
from ..tir import Buffer, Program, Scalar, Stage
from .body import Body, accumulate, below, start
from .kernel import Kernel, lane
from .limits import check_own_points
from .lower import Values, at_point, finish, flatten, launch, product, taken_names, unflatten
from .nodes import Local

THREADS = 256
# Points of a group that has one thread; as few as FEW are sooner computed by one than shared between several.
RUN, FEW = 256, 4096


def schedule_points(program: Program, target: Target) -> Kernel:
    """The one-thread-a-point kernel of any program."""
    body = Body(taken_names(program))
    outputs = {b.name: b for b in program.outputs}
    threads = min(THREADS, target.workgroup_invocations)

    def reduced(stage: Stage, point: tuple[Expr, ...]) -> Scalar:
        assert stage.reducer is not None
        registers = start(body, stage.reducer)
        _serial(body, values, stage, point, registers)
        return registers[0]

    values = Values(program, body, on_reduction=reduced)
    stages = [s for s in program.stages if any(name in outputs for name in s.outputs)]
    domains: dict[Expr, list[Stage]] = {}
    for stage in stages:
        domains.setdefault(product(a.extent for a in stage.spatial), []).append(stage)
    run = _run(stages, list(domains)) if threads == 1 else 1
    grid, group, _ = launch(_groups(list(domains), threads * run), target)
    for total, members in domains.items():
        with _points(body, group, threads, run, total) as flat:
            stores: list[tuple[str, Expr, Scalar]] = []
            for stage in members:
                stores += _stage(body, values, stage, flat, outputs)
            # All values are read before the first store: an in-place output may overwrite what they read.
            named = [(name, at, body.let("value", value)) for name, at, value in stores]
            for name, at, value in named:
                body.store(name, at, value)
    return check_own_points(finish(program, body, threads, grid), program)


def _run(stages: list[Stage], totals: list[Expr]) -> int:
    """How many points a lone thread takes; those of sums are no quick ones."""
    bounds = [upper_bound(total) for total in totals]
    few = all(bound is not None and bound <= FEW for bound in bounds)
    return FEW if few and all(stage.reducer is None for stage in stages) else RUN


@contextmanager
def _points(body: Body, group: Expr, threads: int, run: int, total: Expr) -> Iterator[Expr]:
    """A thread's point out of `total`; a lone thread's run of them, as a loop that a compiler can vectorize."""
    if threads == 1:
        with body.loop("i", group * run, minimum(group * run + run, total)) as flat:
            yield flat
        return
    high = upper_bound(total)
    flat = body.let_index("i", group * threads + lane(threads), None if high is None else max(high - 1, 0))
    with body.when(below(flat, total)):
        yield flat


def _groups(totals: list[Expr], threads: int) -> Expr:
    groups = [(total + (threads - 1)) // threads for total in totals]
    return maximum(*groups) if len(groups) > 1 else groups[0]


def _stage(
    body: Body, values: Values, stage: Stage, flat: Expr, outputs: Mapping[str, Buffer]
) -> list[tuple[str, Expr, Scalar]]:
    """The stores of one stage's point."""
    point = unflatten(flat, [a.extent for a in stage.spatial])
    mapping = at_point(stage.spatial, point)
    if stage.reducer is None:
        results = [values.scalar(v, mapping) for v in stage.values]
    else:
        registers = start(body, stage.reducer)
        _serial(body, values, stage, tuple(point), registers)
        results = list(registers)
    if stage.is_pointwise:
        where = flat
    else:
        shape = values.program.buffer(stage.outputs[0]).shape
        where = flatten([values.index(substitute(i, mapping)) for i in stage.indices], shape)
    return [(name, where, v) for name, v in zip(stage.outputs, results, strict=True) if name in outputs]


def _serial(body: Body, values: Values, stage: Stage, point: tuple[Expr, ...], registers: list[Local]) -> None:
    """Loops over a stage's reduction axes at one point."""
    assert stage.reducer is not None
    mapping = at_point(stage.spatial, point)
    with ExitStack() as loops:
        for axis in stage.reduce:
            mapping[axis.var] = loops.enter_context(body.loop(axis.var.name, 0, axis.extent))
        accumulate(body, stage.reducer, registers, [values.scalar(v, mapping) for v in stage.values])
