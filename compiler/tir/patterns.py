"""Pattern kinds of tensor programs, from their loops and index patterns alone (Relax, algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from ..symbolic import Expr, Var, as_int
from .program import Program, Stage
from .scalar import Binary, Load, loads


class Kind(IntEnum):
    """In the order of how much fusion they restrict."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUTPUT_FUSIBLE = 4
    OPAQUE = 5

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


def classify(program: Program) -> Kind:
    """The kind of a program.

    Shape variables count as constants. Several stages: a product reduction with pointwise stages on its result is
    output-elementwise-fusible, any other program with a reduction is a reduction. Several outputs, a scatter, or
    writing in place make a program opaque.
    """
    if len(program.outputs) != 1 or program.in_place or not all(stage.is_pointwise for stage in program.stages):
        return Kind.OPAQUE
    kinds = [stage_kind(stage) for stage in program.stages]
    reductions = [kind for kind in kinds if kind in (Kind.REDUCTION, Kind.OUTPUT_FUSIBLE)]
    if not reductions:
        return max(kinds)
    if kinds[0] == Kind.OUTPUT_FUSIBLE and len(reductions) == 1 and _is_epilogue_chain(program):
        return Kind.OUTPUT_FUSIBLE
    return Kind.REDUCTION


def stage_kind(stage: Stage) -> Kind:
    """The kind of one stage."""
    if not stage.is_pointwise:
        return Kind.OPAQUE
    if stage.reducer is not None:
        return Kind.OUTPUT_FUSIBLE if is_product_sum(stage) else Kind.REDUCTION
    spatial = tuple(axis.var for axis in stage.spatial)
    kinds = {read_kind(load, spatial) for load in stage.loads()}
    if kinds <= {Kind.ELEMENTWISE, Kind.BROADCAST}:
        # A mix counts as elementwise.
        return Kind.BROADCAST if kinds == {Kind.BROADCAST} else Kind.ELEMENTWISE
    return Kind.INJECTIVE


def is_product_sum(stage: Stage) -> bool:
    """Whether the stage sums products of two factors that both read something: matmul, convolution, row dot."""
    if stage.reducer is None or stage.reducer.name != "sum":
        return False
    (value,) = stage.values
    return isinstance(value, Binary) and value.op == "mul" and all(any(loads(f)) for f in (value.left, value.right))


def read_kind(load: Load, spatial: tuple[Var, ...]) -> Kind:
    """How one read relates to the written indices."""
    if load.indices == spatial:
        return Kind.ELEMENTWISE
    return Kind.BROADCAST if _is_ordered_subset(load.indices, spatial) else Kind.INJECTIVE


def _is_ordered_subset(indices: tuple[Expr, ...], spatial: tuple[Var, ...]) -> bool:
    """Whether the indices are some of the spatial variables in order, with zeros where a dimension is stretched."""
    rest: Iterator[Expr] = iter(spatial)
    # `in` on an iterator goes on behind what it found.
    return all(as_int(index) == 0 or index in rest for index in indices)


def _is_epilogue_chain(program: Program) -> bool:
    """Whether every later stage reads the computed buffers at its own indices only."""
    computed = set(program.stages[0].outputs)
    for stage in program.stages[1:]:
        spatial = tuple(axis.var for axis in stage.spatial)
        if any(load.buffer in computed and load.indices != spatial for load in stage.loads()):
            return False
        computed.update(stage.outputs)
    return True
