"""What requirements say about sizes: never too little, checked against all values, and as little as argued by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder, Shape, ShapeValue
from webrelax.compiler.passes import legalize, plan_memory
from webrelax.compiler.passes.bounds import bound_within
from webrelax.compiler.symbolic import Expr, Var, as_expr, ceildiv, evaluate, maximum, minimum
from webrelax.compiler.target import WEBGPU

from ..ops.cases import f32, module_of

N, M, K = Var("n", 1, 16), Var("m", 0, 47), Var("k", 0, 5)
TOGETHER = ((N + M, as_expr(48)),)


@pytest.mark.parametrize(
    ("expr", "requires", "expected"),
    [
        (N * (M + N), TOGETHER, 16 * 48),
        (N * (M + N), (), 16 * (47 + 16)),
        (M + N, TOGETHER, 48),
        (N * ceildiv(M + N, 4) * 4, TOGETHER, 16 * 48),
        # Nothing is said of m alone, and m = 47 with n = 1 is allowed.
        (M * 3, TOGETHER, 47 * 3),
        # 2 m + n <= 20: m is at most 9, as n is at least 1, but only n is solved for; m <= 47 and n <= 20 - 2 m.
        (N + M * 2, ((N + M * 2, as_expr(20)),), 20),
        # The right side may vary.
        (N + M, ((N + M, K * 2),), 10),
        (as_expr(7), TOGETHER, 7),
        # What cannot hold says nothing.
        (N, ((N + 8, as_expr(3)),), 16),
        (Var("u", 0) * 2, TOGETHER, None),
        (Var("u", 0) + N, ((Var("u", 0) + N, as_expr(9)),), 9),
    ],
)
def test_by_hand(expr: Expr, requires: Sequence[tuple[Expr, Expr]], expected: int | None) -> None:
    assert bound_within(expr, requires) == expected


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([N, M, K, as_expr(1), as_expr(3)])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(lambda a, d: a // d, inner, st.integers(1, 5)),
            st.builds(lambda a, d: a % d, inner, st.integers(1, 5)),
            st.builds(lambda a, b: minimum(a, b), inner, inner),
            st.builds(lambda a, b: maximum(a, b), inner, inner),
        ),
        max_leaves=6,
    )


@given(
    expressions(),
    expressions(),
    st.integers(0, 60),
    st.tuples(st.integers(1, 16), st.integers(0, 47), st.integers(0, 5)),
)
def test_no_value_that_is_allowed_is_above(expr: Expr, left: Expr, right: int, values: tuple[int, int, int]) -> None:
    env = dict(zip((N, M, K), values, strict=True))
    bound = bound_within(expr, ((left, as_expr(right)),))
    if evaluate(left, env) <= right and bound is not None:
        assert evaluate(expr, env) <= bound


def test_the_plan_uses_it() -> None:
    """Scores of n rows against m + n others."""
    b = FunctionBuilder("f")
    b.param("past", Shape((M,)))
    x = b.param("x", f32(N, N + M))
    function = b.finish(b.op(ops.row_sum, b.op(ops.reshape, b.op(ops.exp_of, x), ShapeValue((N, N + M)))))
    sizes = []
    for requires in ((), TOGETHER):
        planned = plan_memory(legalize(module_of(replace(function, requires=requires))), WEBGPU)
        sizes.append(max(size for size in planned.storages.values() if isinstance(size, int)))
    assert sizes == [4 * 16 * 63, 4 * 16 * 48]
