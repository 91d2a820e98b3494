"""Long sums for few outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import MAX, Literal, ProgramBuilder, Select, exp, less_equal

from .conftest import Check
from .models import byte_words, nibble_words, nibbles, signed_bytes

M = Var("m", 0, 2047)
N = Var("n", 1, 128)


@pytest.mark.parametrize(("rows", "columns"), [(100, 576), (7, 32), (1536, 64), (65, 1536)])
def test_nibbles(check: Check, rows: int, columns: int) -> None:
    b = ProgramBuilder("gemv")
    x = b.input("x", (1, columns), "f32")
    _, w = nibbles(b, rows, columns)
    y = b.reduce("y", (1, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    source = check(b.finish(y), given={"w": lambda s: nibble_words(rows, columns)}, rule="dots")
    assert source.text.count("w[") in (2, 4, 8)  # a word and a pair of halves for each of a thread's rows


@pytest.mark.parametrize(("rows", "columns"), [(100, 576), (9000, 64)])
def test_bytes_with_residual(check: Check, rows: int, columns: int) -> None:
    b = ProgramBuilder("gemv_add")
    x, r = b.input("x", (1, columns), "f32"), b.input("r", (1, rows), "f32")
    _, w = signed_bytes(b, rows, columns)
    y = b.reduce("y", (1, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    z = b.scatter("z", r, (1, rows), lambda i, o: (i, o), lambda i, o: r[i, o] + y[i, o])
    check(b.finish(z), given={"w": lambda s: byte_words(rows, columns)}, rule="dots")


def test_silu_times_up(check: Check) -> None:
    b = ProgramBuilder("gate")
    x, up, w = b.input("x", (1, 48), "f32"), b.input("up", (1, 96), "f32"), b.input("w", (96, 48), "f32")
    gate = b.reduce("gate", (1, 96), (48,), lambda i, o, k: x[i, k] * w[o, k])
    y = b.compute("y", (1, 96), lambda i, o: gate[i, o] / (exp(-gate[i, o]) + 1) * up[i, o])
    check(b.finish(y), rule="dots")


def test_result_is_split_into_heads(check: Check) -> None:
    b = ProgramBuilder("heads")
    x, w = b.input("x", (1, 48), "f32"), b.input("w", (96, 48), "f32")
    y = b.reduce("y", (1, 96), (48,), lambda i, o, k: x[i, k] * w[o, k])
    z = b.compute("z", (1, 6, 16), lambda i, h, d: y[i, h * 16 + d] * 2)
    check(b.finish(z), rule="dots")


def test_scores_of_grouped_heads(check: Check) -> None:
    b = ProgramBuilder("scores")
    q, cache = b.input("q", (1, 9, 64), "f32"), b.input("cache", (1, 2048, 3, 64), "f32")
    s = b.reduce("s", (9, 1, M + 1), (64,), lambda h, i, j, d: q[i, h, d] * cache[0, j, h // 3, d])
    y = b.compute(
        "y",
        (9, 1, M + 1),
        lambda h, i, j: Select(less_equal(j, M), s[h, i, j] * 0.125, Literal(-1e30, "f32")),
    )
    check(b.finish(y), [[0], [3], [63], [64], [2047]], rule="dots")


def test_weighted_sum_of_values(check: Check) -> None:
    b = ProgramBuilder("values")
    p, cache = b.input("p", (9, 1, M + 1), "f32"), b.input("cache", (1, 2048, 3, 64), "f32")
    y = b.reduce("y", (1, 9, 64), (M + 1,), lambda i, h, d, j: p[h, i, j] * cache[0, j, h // 3, d])
    check(b.finish(y), [[0], [6], [7], [100], [2047]], rule="dots")


@pytest.mark.parametrize("width", [1, 5, 129])
def test_row_maximum(check: Check, width: int) -> None:
    b = ProgramBuilder("top")
    x = b.input("x", (N, width), "f32")
    check(b.finish(b.reduce("y", (N,), (width,), lambda i, k: x[i, k], MAX)), [[1], [33], [128]], rule="dots")


def test_sum_over_two_axes(check: Check) -> None:
    b = ProgramBuilder("sum2")
    x = b.input("x", (5, N, 6), "f32")
    check(b.finish(b.reduce("y", (N,), (5, 6), lambda i, a, c: x[a, i, c])), [[1], [33], [128]], rule="dots")


@pytest.mark.parametrize("threads", [1, 256, 700, 2048, 1 << 16])
@pytest.mark.parametrize(("rows", "columns"), [(300, 576), (2100, 64)])
def test_any_number_of_threads(check: Check, rows: int, columns: int, threads: int) -> None:
    """However outputs and sums are divided among threads."""
    target = replace(WEBGPU, parallel_threads=threads)
    b = ProgramBuilder("gemv")
    x = b.input("x", (1, columns), "f32")
    _, w = nibbles(b, rows, columns)
    y = b.reduce("y", (1, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    check(b.finish(y), given={"w": lambda s: nibble_words(rows, columns)}, rule="dots", target=target)
    b = ProgramBuilder("transposed")
    x, w = b.input("x", (1, columns), "f32"), b.input("w", (columns, rows), "f32")
    y = b.reduce("y", (1, rows), (columns,), lambda i, o, k: x[i, k] * w[k, o])
    check(b.finish(y), rule="dots", target=target)
