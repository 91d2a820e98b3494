"""Bytes and operations of tensor programs, counted by hand."""

from __future__ import annotations

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, Operator, Shape
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.tir import Program
from webrelax.packaging.report.costs import Cost, cost

from ...compiler.ops.cases import f32, i32

N, M = Var("n", 1, 64), Var("m", 0, 64)


def program(operator: Operator, *arguments: Annotation, **attributes: object) -> Program:
    assert operator.lower is not None
    return operator.lower(arguments, attributes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # One addition an element of two inputs.
        (program(ops.add, f32(N, 8), f32(N, 8)), Cost(2 * 5 * 8 * 4, 5 * 8 * 4, 5 * 8)),
        # A multiplication and an addition for each of 5 x 6 x 8; each matrix is read once.
        (program(ops.linear, f32(N, 8), f32(6, 8)), Cost((5 * 8 + 6 * 8) * 4, 5 * 6 * 4, 2 * 5 * 6 * 8)),
        # Five rows of the table, and five indices.
        (program(ops.take, f32(9, 4), i32(N)), Cost((5 * 4 + 5) * 4, 5 * 4 * 4, 0)),
        # Only what is appended is written.
        (
            program(ops.kv_append, f32(1, 16, 2, 4), f32(N, 2, 4), i32(N), i32(N)),
            Cost((5 * 8 + 5 + 5) * 4, 5 * 8 * 4, 0),
        ),
        # Renaming indices is no arithmetic.
        (program(ops.reshape, f32(N, 8), Shape((N * 8,))), Cost(5 * 8 * 4, 5 * 8 * 4, 0)),
        # The last row alone is read.
        (program(ops.last_row, f32(N, 8)), Cost(8 * 4, 8 * 4, 0)),
    ],
)
def test_cost(given: Program, expected: Cost) -> None:
    assert cost(given, {N: 5}) == expected


def test_nothing_to_do() -> None:
    n = Var("n", 0, 8)
    assert cost(program(ops.add, f32(n, 8), f32(n, 8)), {n: 0}) == Cost(0, 0, 0)


def test_reading_again_counts_once() -> None:
    """Softmax reads its rows three times; they are counted once, and what stays inside not at all."""
    found = cost(program(ops.softmax, f32(N, as_expr(8))), {N: 5})
    assert (found.read, found.written) == (5 * 8 * 4, 5 * 8 * 4)
