"""Several reductions over the same points: gate and up with what is pointwise behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from webrelax.compiler.schedule import rule_for
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.tir import MAX, Program, ProgramBuilder, exp

from .conftest import Array, Check
from .models import Weight, byte_words, floats, nibble_words, nibbles, signed_bytes

N = Var("n", 1, 128)
EDGES = [[1], [31], [33], [128]]
DATA: dict[Weight, Callable[[int, int, int], Array]] = {
    nibbles: nibble_words,
    signed_bytes: byte_words,
    floats: lambda r, k, seed: np.random.default_rng(seed).random((r, k), np.float32) * 0.02,
}


def gated(n: Expr | int, rows: int, columns: int, gate_weight: Weight, up_weight: Weight) -> Program:
    b = ProgramBuilder("gated")
    x = b.input("x", (n, columns), "f32")
    _, w = gate_weight(b, rows, columns, "gate_w")
    _, v = up_weight(b, rows, columns, "up_w")
    gate = b.reduce("gate", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    up = b.reduce("up", (n, rows), (columns,), lambda i, o, k: x[i, k] * v[o, k])
    return b.finish(b.compute("y", (n, rows), lambda i, o: gate[i, o] / (exp(-gate[i, o]) + 1) * up[i, o]))


@pytest.mark.parametrize(
    ("rows", "columns", "gate", "up"),
    [
        (96, 576, nibbles, nibbles),
        (1536, 64, nibbles, nibbles),
        (100, 96, nibbles, signed_bytes),
        (33, 50, floats, floats),
    ],
)
@pytest.mark.parametrize("n", [1, N])
def test_gated(check: Check, n: Expr | int, rows: int, columns: int, gate: Weight, up: Weight) -> None:
    words = {"gate_w": lambda s: DATA[gate](rows, columns, 1), "up_w": lambda s: DATA[up](rows, columns, 2)}
    source = check(
        gated(n, rows, columns, gate, up),
        [()] if n == 1 else EDGES,
        words,
        rule="dots" if n == 1 else "gemm",
    )
    assert len(source.access) == 4


def test_the_activations_are_loaded_once(check: Check) -> None:
    words = {"gate_w": lambda s: nibble_words(96, 64, 1), "up_w": lambda s: nibble_words(96, 64, 2)}
    source = check(gated(1, 96, 64, nibbles, nibbles), given=words, rule="dots")
    assert source.text.count("= x[") == 2  # two vectors of four for a word of eight codes
    source = check(gated(N, 96, 64, nibbles, nibbles), [[1]], given=words, rule="gemm")
    assert source.text.count("= x[") == 2 * 8  # ... in each of eight rows


def test_three_products_and_one_of_them_as_a_result(check: Check) -> None:
    b = ProgramBuilder("three")
    x = b.input("x", (N, 64), "f32")
    weights = [b.input(f"w{i}", (40, 64), "f32") for i in range(3)]
    parts = [b.reduce(f"p{i}", (N, 40), (64,), lambda i, o, k, w=w: w[o, k] * x[i, k]) for i, w in enumerate(weights)]
    y = b.compute(
        "y", (N, 5, 8), lambda i, h, d: parts[0][i, h * 8 + d] * parts[1][i, h * 8 + d] + parts[2][i, h * 8 + d]
    )
    check(b.finish(parts[2], y), EDGES, rule="gemm")


@pytest.mark.parametrize("weight", [floats, nibbles])
def test_several_inputs_of_one_matrix(check: Check, weight: Weight) -> None:
    b = ProgramBuilder("one_matrix")
    x, y = b.input("x", (N, 64), "f32"), b.input("y", (N, 64), "f32")
    _, w = weight(b, 70, 64, "w")
    p = b.reduce("p", (N, 70), (64,), lambda i, o, k: x[i, k] * w[o, k])
    q = b.reduce("q", (N, 70), (64,), lambda i, o, k: y[i, k] * w[o, k])
    result = b.compute("z", (N, 70), lambda i, o: p[i, o] - q[i, o] * 2)
    check(b.finish(result), EDGES, {"w": lambda s: DATA[weight](70, 64, 1)}, rule="gemm")


def test_products_of_different_left_operands(check: Check) -> None:
    b = ProgramBuilder("two_inputs")
    x, y = b.input("x", (N, 32), "f32"), b.input("y", (N, 32), "f32")
    w, v = b.input("w", (9, 32), "f32"), b.input("v", (9, 32), "f32")
    p = b.reduce("p", (N, 9), (32,), lambda i, o, k: x[i, k] * w[o, k])
    q = b.reduce("q", (N, 9), (32,), lambda i, o, k: y[i, k] * v[o, k])
    check(b.finish(b.compute("z", (N, 9), lambda i, o: p[i, o] - q[i, o])), EDGES, rule="dots")


def test_sum_and_maximum(check: Check) -> None:
    b = ProgramBuilder("statistics")
    x = b.input("x", (N, 77), "f32")
    total = b.reduce("total", (N,), (77,), lambda i, k: x[i, k])
    top = b.reduce("top", (N,), (77,), lambda i, k: x[i, k], MAX)
    z = b.compute("z", (N,), lambda i: total[i] - top[i])
    check(b.finish(total, z), EDGES, rule="dots")


def test_a_reduction_of_another_ones_result_is_something_else(check: Check) -> None:
    b = ProgramBuilder("spread")
    x = b.input("x", (N, 77), "f32")
    total = b.reduce("total", (N,), (77,), lambda i, k: x[i, k])
    spread = b.reduce("spread", (N,), (77,), lambda i, k: exp(x[i, k] - total[i] * (1 / 77)))
    program = b.finish(spread)
    assert rule_for(program).name == "rows"
    check(program, EDGES)


def test_different_lengths_are_something_else() -> None:
    b = ProgramBuilder("lengths")
    x = b.input("x", (N, 64), "f32")
    long = b.reduce("long", (N,), (64,), lambda i, k: x[i, k])
    short = b.reduce("short", (N,), (32,), lambda i, k: x[i, k])
    assert rule_for(b.finish(b.compute("y", (N,), lambda i: long[i] - short[i]))).name == "rows"
