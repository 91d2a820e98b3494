"""Pattern kinds: case P1 (algorithm 1) of Relax. What else there is to say of kinds is in tir/test_patterns.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Operator, Tensor
from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import Kind, Program, ProgramBuilder, classify, print_program, stage_kind

from ..ops.cases import f32, i32
from ..renaming import other_program
from .figure import check_lines
from .test_fusion import decode_q4

N, M = Var("n", 1, 64), Var("m", 0, 63)
ELEMENTWISE, INJECTIVE, REDUCTION, OUTPUT_FUSIBLE = (
    Kind.ELEMENTWISE, Kind.INJECTIVE, Kind.REDUCTION, Kind.OUTPUT_FUSIBLE,
)  # fmt: skip


def lowered(operator: Operator, *arguments: Tensor, **attributes: Any) -> Program:
    assert operator.lower is not None
    return operator.lower(arguments, attributes)


def stencil() -> Program:
    b = ProgramBuilder("stencil")
    x = b.input("x", (N, 34), "f32")
    return b.finish(b.compute("y", (N, 32), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2]))


def broadcast_column() -> Program:
    b = ProgramBuilder("broadcast_column")
    x = b.input("x", (N,), "f32")
    return b.finish(b.compute("y", (N, 32), lambda i, j: x[i]))


@dataclass(frozen=True)
class Row:
    """A program with the kinds of its stages and its own, and why by the definitions of algorithm 1."""

    name: str
    program: Program
    stages: Sequence[Kind]
    kind: Kind
    why: str


TABLE = [
    Row(
        "matmul", lowered(ops.linear, f32(N, 64), f32(32, 64)), [OUTPUT_FUSIBLE], OUTPUT_FUSIBLE,
        "k is summed over and is no index of y; the body multiplies two operands and adds up",
    ),
    Row(
        "softmax", lowered(ops.softmax, f32(N, 32)), [REDUCTION, REDUCTION, ELEMENTWISE], REDUCTION,
        "a maximum and a sum over k with a body of one operand; y reads x[i, j] and, by the subset i, top and total",
    ),
    Row(
        "RMSNorm", lowered(ops.rms_norm, f32(N, 32), f32(32), eps=1e-5), [OUTPUT_FUSIBLE, ELEMENTWISE], REDUCTION,
        "the squares are a sum of products; y reads x[i, j] and, by subsets, squares[i] and w[j]. The whole is a "
        "reduction: what follows the sum needs it for a row, not for one element",
    ),
    Row("transpose", lowered(ops.transpose, f32(N, 32), axes=(1, 0)), [INJECTIVE], INJECTIVE, "(j, i) is out of order"),
    Row(
        "bias add", lowered(ops.add, f32(N, 32), f32(32)), [ELEMENTWISE], ELEMENTWISE,
        "x[i, j] is elementwise, bias[j] broadcast: a mix counts as elementwise",
    ),
    Row("broadcast", broadcast_column(), [Kind.BROADCAST], Kind.BROADCAST, "x[i] is an ordered subset of (i, j)"),
    Row(
        "RoPE", lowered(ops.rope, f32(N, 2, 8), i32(N), f32(64, 4), f32(64, 4), interleaved=False),
        [INJECTIVE], INJECTIVE, "besides x[i, h, d] it reads the partner of d, and the tables at loaded positions",
    ),
    Row(
        "take", lowered(ops.take, f32(50, 32), i32(N)), [INJECTIVE], INJECTIVE,
        "the row is loaded: neither the index nor a subset of the indices, and nothing is reduced",
    ),
    Row(
        "4-bit decode", lowered(decode_q4), [INJECTIVE], INJECTIVE,
        "words[r, k//8] and scales[r, k//32] are computed from the indices; nothing is reduced",
    ),
    Row(
        "concat", lowered(ops.concat, f32(N, 32), f32(M, 32), axis=0), [INJECTIVE], INJECTIVE,
        "y is read at i - n; n is a constant in an index",
    ),
    Row("stencil", stencil(), [INJECTIVE], INJECTIVE, "each read is a shift of the indices; no loop over neighbours"),
]  # fmt: skip


def test_p1_each_program_is_classified_from_its_loops() -> None:
    text = []
    for row in TABLE:
        stages = row.program.stages
        kinds = [stage_kind(stage) for stage in stages]
        assert kinds == row.stages, row.name
        assert classify(row.program) == row.kind, row.name
        parts = [f"{stage.outputs[0]}: {kind}" for stage, kind in zip(stages, kinds, strict=True)]
        inner = f" ({', '.join(parts)})" if len(parts) > 1 else ""
        text.append(f"# {row.name}: {classify(row.program)}{inner}\n# {row.why}\n{print_program(row.program)}")
    check_lines("p1_pattern_kinds", "\n".join(text))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_p1_names_change_nothing(row: Row) -> None:
    """The program, its buffers, its loops and its symbols are called otherwise."""
    renamed = other_program(row.program)
    assert set(print_program(renamed).split()).isdisjoint(b.name for b in (*row.program.inputs, *row.program.outputs))
    assert classify(renamed) == row.kind
    assert [stage_kind(stage) for stage in renamed.stages] == row.stages
