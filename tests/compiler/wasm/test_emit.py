"""C kernels against the interpreter: every operator's programs, and those that models consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import MAX, Compare, Literal, ProgramBuilder, Select, Unary

from ..schedule.models import nibble_words, nibbles
from .machine import Array, check_program

N = Var("n", 1, 128)


@pytest.mark.parametrize("op", ["neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "floor"])
def test_functions(op: str) -> None:
    """At many points of the range, and in vectors and alone."""
    x = np.concatenate([np.geomspace(1e-30, 80, 400), np.linspace(0.001, 9, 403)]).astype(np.float32)
    x = x if op in ("log", "sqrt", "rsqrt") else np.concatenate([x, -x])
    b = ProgramBuilder(op)
    given = b.input("x", (len(x),), "f32")
    y = b.compute("y", (len(x),), lambda i: Unary(op, given[i]))
    check_program(b.finish(y), given={"x": lambda _: x}, tolerance=1e-6)


def test_integers_and_choices() -> None:
    b = ProgramBuilder("integers")
    x, y = b.input("x", (N, 5), "i32"), b.input("y", (5,), "i32")
    z = b.compute(
        "z", (N, 5), lambda i, j: Select(Compare("lt", x[i, j], y[j]), (x[i, j] - y[j]) * 3, Literal(-7, "i32"))
    )
    check_program(b.finish(z), [[1], [7], [128]])


@pytest.mark.parametrize("rows", [1, 8, N])
def test_quantized_matmul(rows: int | Var) -> None:
    """A GEMV, and the GEMM of more rows, with the decode in its loads."""
    b = ProgramBuilder("matmul")
    x = b.input("x", (rows, 64), "f32")
    _, w = nibbles(b, 40, 64)
    y = b.reduce("y", (rows, 40), (64,), lambda i, o, k: x[i, k] * w[o, k])
    z = b.compute("z", (rows, 40), lambda i, o: y[i, o] / (Unary("exp", -y[i, o]) + 1))
    given: Mapping[str, Callable[[Mapping[Var, int]], Array]] = {"w": lambda _: nibble_words(40, 64)}
    check_program(b.finish(z), [[1], [5], [128]] if rows is N else [[]], given)


@pytest.mark.parametrize("columns", [6, 64, Var("m", 1, 300)])
def test_softmax(columns: int | Var) -> None:
    b = ProgramBuilder("softmax")
    x = b.input("x", (N, columns), "f32")
    top = b.reduce("top", (N,), (columns,), lambda i, k: x[i, k], MAX)
    total = b.reduce("total", (N,), (columns,), lambda i, k: Unary("exp", x[i, k] - top[i]))
    y = b.compute("y", (N, columns), lambda i, j: Unary("exp", x[i, j] - top[i]) / total[i])
    check_program(b.finish(y), [[1, 1], [3, 2], [299, 128]] if isinstance(columns, Var) else [[1], [128]])
