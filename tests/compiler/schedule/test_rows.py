"""One workgroup a row."""

from __future__ import annotations

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.schedule import rule_for, schedule
from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import ARGMAX, MAX, Index, ProgramBuilder, exp, rsqrt

from .conftest import Check

N = Var("n", 1, 128)
M = Var("m", 0, 2047)
ROWS = Var("rows", 1, 100_000)


@pytest.mark.parametrize("width", [2, 31, 576, 1000])
def test_rms_norm(check: Check, width: int) -> None:
    b = ProgramBuilder("rms_norm")
    x, g = b.input("x", (N, width), "f32"), b.input("g", (width,), "f32")
    squares = b.reduce("squares", (N,), (width,), lambda i, k: x[i, k] * x[i, k])
    y = b.compute("y", (N, width), lambda i, j: x[i, j] * rsqrt(squares[i] * (1 / width) + 1e-5) * g[j])
    check(b.finish(y), [[1], [3], [128]], rule="rows")


def test_rms_norm_of_a_sum_that_is_kept(check: Check) -> None:
    b = ProgramBuilder("add_norm")
    x, r, g = b.input("x", (N, 100), "f32"), b.input("r", (N, 100), "f32"), b.input("g", (100,), "f32")
    h = b.scatter("h", x, (N, 100), lambda i, j: (i, j), lambda i, j: x[i, j] + r[i, j])
    squares = b.reduce("squares", (N,), (100,), lambda i, k: h[i, k] * h[i, k])
    y = b.compute("y", (N, 100), lambda i, j: h[i, j] * rsqrt(squares[i] * 0.01 + 1e-5) * g[j])
    check(b.finish(h, y), [[1], [3], [128]], rule="rows")


def test_norm_that_overwrites_its_input(check: Check) -> None:
    b = ProgramBuilder("norm_in_place")
    x = b.input("x", (1, 300), "f32")
    squares = b.reduce("squares", (1,), (300,), lambda i, k: x[i, k] * x[i, k])
    y = b.scatter("y", x, (1, 300), lambda i, j: (i, j), lambda i, j: x[i, j] * rsqrt(squares[i] + 1e-5))
    check(b.finish(y), rule="rows")


def test_reading_what_was_overwritten_is_refused() -> None:
    b = ProgramBuilder("late")
    x, r = b.input("x", (N, 100), "f32"), b.input("r", (N, 100), "f32")
    h = b.scatter("h", x, (N, 100), lambda i, j: (i, j), lambda i, j: x[i, j] + r[i, j])
    squares = b.reduce("squares", (N,), (100,), lambda i, k: x[i, k] * x[i, k])
    y = b.compute("y", (N, 100), lambda i, j: h[i, j] * squares[i])
    program = b.finish(h, y)
    assert rule_for(program).name != "rows"
    with pytest.raises(WebrelaxError, match="overwrites x"):
        schedule(program)


def test_softmax_of_symbolic_length(check: Check) -> None:
    b = ProgramBuilder("softmax")
    s = b.input("s", (9, N, M + N), "f32")
    top = b.reduce("top", (9, N), (M + N,), lambda h, i, j: s[h, i, j], MAX)
    e = b.compute("e", (9, N, M + N), lambda h, i, j: exp(s[h, i, j] - top[h, i]))
    total = b.reduce("total", (9, N), (M + N,), lambda h, i, j: e[h, i, j])
    y = b.compute("y", (9, N, M + N), lambda h, i, j: e[h, i, j] / total[h, i])
    check(b.finish(y), [[0, 1], [6, 5], [255, 1], [300, 31]], rule="rows")


def test_argmax_with_ties(check: Check) -> None:
    b = ProgramBuilder("argmax")
    x = b.input("x", (N, 5000), "f32")
    best = b.reduce("best", (N,), (5000,), lambda i, k: x[i, k], MAX)
    check(b.finish(best), [[1], [3]])
    from webrelax.compiler.symbolic import as_expr
    from webrelax.compiler.tir import Buffer, Program, Stage
    from webrelax.compiler.tir.builder import axis

    i, k = axis("i0", N), axis("k0", 5000)
    stage = Stage(("value", "at"), (i,), (i.var,), (x[i.var, k.var], Index(as_expr(k.var))), (k,), ARGMAX)
    outputs = Buffer("value", (as_expr(N),), "f32"), Buffer("at", (as_expr(N),), "i32")
    program = Program("argmax", (x.buffer,), outputs, (stage,), (), (N,))
    tied = lambda s: np.random.default_rng(3).integers(0, 40, (s[N], 5000)).astype(np.float32)  # noqa: E731
    check(program, [[1], [3]], {"x": tied})


def test_more_rows_than_a_grid_dimension(check: Check) -> None:
    b = ProgramBuilder("row_sums")
    x = b.input("x", (ROWS, 3), "f32")
    total = b.reduce("total", (ROWS,), (3,), lambda i, k: x[i, k])
    y = b.compute("y", (ROWS, 3), lambda i, k: x[i, k] - total[i])
    check(b.finish(y), [[1], [65535], [65537]], rule="rows")


def test_whole_array(check: Check) -> None:
    b = ProgramBuilder("norm")
    x = b.input("x", (N, 7), "f32")
    total = b.reduce("total", (), (N, 7), lambda i, k: x[i, k] * x[i, k])
    y = b.compute("y", (N, 7), lambda i, k: x[i, k] * rsqrt(total[()]))
    check(b.finish(total, y), [[1], [128]], rule="rows")
