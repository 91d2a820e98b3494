"""Matrix multiplication."""

from __future__ import annotations

import pytest

from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import Literal, ProgramBuilder, Select, exp, less_equal, rsqrt

from .conftest import Check
from .models import byte_words, nibble_words, nibbles, signed_bytes

N = Var("n", 1, 128)
M = Var("m", 0, 2047)
EDGES = [[1], [31], [32], [33], [128]]


@pytest.mark.parametrize(("rows", "columns"), [(63, 576), (65, 32), (64, 64), (576, 1536)])
def test_nibbles(check: Check, rows: int, columns: int) -> None:
    b = ProgramBuilder("gemm")
    x = b.input("x", (N, columns), "f32")
    _, w = nibbles(b, rows, columns)
    y = b.reduce("y", (N, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    source = check(b.finish(y), EDGES, {"w": lambda s: nibble_words(rows, columns)}, rule="gemm")
    # Of each column a word of codes and a pair of halves, and no column twice.
    assert source.text.count("w[") == 2 * (8 if rows * 128 >= 1 << 16 else 4)


@pytest.mark.parametrize(("rows", "columns"), [(63, 576), (64, 96)])
def test_bytes_with_residual(check: Check, rows: int, columns: int) -> None:
    b = ProgramBuilder("gemm_add")
    x, r = b.input("x", (N, columns), "f32"), b.input("r", (N, rows), "f32")
    _, w = signed_bytes(b, rows, columns)
    y = b.reduce("y", (N, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    z = b.scatter("z", r, (N, rows), lambda i, o: (i, o), lambda i, o: r[i, o] + y[i, o])
    check(b.finish(z), EDGES, {"w": lambda s: byte_words(rows, columns)}, rule="gemm")


@pytest.mark.parametrize("columns", [1, 2, 31, 33, 50])
def test_odd_sums(check: Check, columns: int) -> None:
    b = ProgramBuilder("odd")
    x, w = b.input("x", (N, columns), "f32"), b.input("w", (columns, 67), "f32")
    y = b.reduce("y", (N, 67), (columns,), lambda i, o, k: x[i, k] * w[k, o])
    check(b.finish(y), EDGES, rule="gemm" if columns > 1 else None)


def test_silu_times_up_and_prologue(check: Check) -> None:
    b = ProgramBuilder("gate")
    x, up, w, g = (
        b.input("x", (N, 48), "f32"),
        b.input("up", (N, 96), "f32"),
        b.input("w", (96, 48), "f32"),
        b.input("g", (48,), "f32"),
    )
    scaled = b.compute("scaled", (N, 48), lambda i, k: x[i, k] * g[k])
    gate = b.reduce("gate", (N, 96), (48,), lambda i, o, k: scaled[i, k] * w[o, k])
    y = b.compute("y", (N, 96), lambda i, o: gate[i, o] / (exp(-gate[i, o]) + 1) * up[i, o])
    check(b.finish(y), EDGES, rule="gemm")


def test_scores_of_grouped_heads(check: Check) -> None:
    b = ProgramBuilder("scores")
    q, cache = b.input("q", (N, 9, 64), "f32"), b.input("cache", (1, 2048, 3, 64), "f32")
    s = b.reduce("s", (9, N, M + N), (64,), lambda h, i, j, d: q[i, h, d] * cache[0, j, h // 3, d])
    y = b.compute(
        "y",
        (9, N, M + N),
        lambda h, i, j: Select(less_equal(j, M + i), s[h, i, j] * 0.125, Literal(-1e30, "f32")),
    )
    check(b.finish(y), [[0, 1], [3, 31], [63, 33], [1920, 128]], rule="gemm")


def test_weighted_sum_of_values(check: Check) -> None:
    b = ProgramBuilder("values")
    p, cache = b.input("p", (9, N, M + N), "f32"), b.input("cache", (1, 2048, 3, 64), "f32")
    y = b.reduce("y", (N, 9, 64), (M + N,), lambda i, h, d, j: p[h, i, j] * cache[0, j, h // 3, d])
    check(b.finish(y), [[0, 1], [3, 31], [63, 33], [1920, 128]], rule="gemm")


def test_split_and_merged_axes(check: Check) -> None:
    """Columns that are two axes of the result, rows that are two axes too."""
    b = ProgramBuilder("heads")
    x, w = b.input("x", (2, N, 48), "f32"), b.input("w", (96, 48), "f32")
    y = b.reduce("y", (2, N, 6, 16), (48,), lambda a, i, h, d, k: x[a, i, k] * w[h * 16 + d, k])
    check(b.finish(y), [[1], [17], [128]], rule="gemm")


def test_result_is_reshaped(check: Check) -> None:
    b = ProgramBuilder("reshaped")
    x, w = b.input("x", (N, 48), "f32"), b.input("w", (96, 48), "f32")
    y = b.reduce("y", (N, 96), (48,), lambda i, o, k: x[i, k] * w[o, k])
    z = b.compute("z", (N, 6, 16), lambda i, h, d: rsqrt(y[i, h * 16 + d] * y[i, h * 16 + d] + 1))
    check(b.finish(y, z), EDGES, rule="gemm")
