"""One thread a point: elementwise, injective, scatter, and the fallback."""

from __future__ import annotations

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.schedule import schedule
from webrelax.compiler.symbolic import Var
from webrelax.compiler.symbolic import maximum as largest
from webrelax.compiler.symbolic import minimum as smallest
from webrelax.compiler.tir import (
    MAX,
    Cast,
    Index,
    Literal,
    ProgramBuilder,
    Select,
    Unary,
    exp,
    half,
    less,
    less_equal,
    maximum,
)

from .conftest import Check

N = Var("n", 1, 128)
M = Var("m", 0, 2047)


def test_chain_with_broadcast(check: Check) -> None:
    b = ProgramBuilder("swiglu")
    gate, up, bias = b.input("gate", (N, 96), "f32"), b.input("up", (N, 96), "f32"), b.input("bias", (96,), "f32")
    h = b.compute("h", (N, 96), lambda i, j: gate[i, j] + bias[j])
    y = b.compute("y", (N, 96), lambda i, j: h[i, j] / (exp(-h[i, j]) + 1) * up[i, j])
    check(b.finish(y), [[1], [3], [128]], rule="points")


def test_two_outputs_of_different_shapes(check: Check) -> None:
    b = ProgramBuilder("two")
    x = b.input("x", (N, 6), "f32")
    y = b.compute("y", (N, 6), lambda i, j: x[i, j] * 2)
    z = b.compute("z", (6, N), lambda i, j: y[j, i] + 1)
    w = b.compute("w", (N,), lambda i: z[5, i])
    check(b.finish(y, z, w), [[1], [43], [128]], rule="points")


def test_reshape_transpose_concat(check: Check) -> None:
    b = ProgramBuilder("views")
    x, y = b.input("x", (N, 3, 8), "f32"), b.input("y", (N, 40), "f32")
    flat = b.compute("flat", (N, 24), lambda i, j: x[i, j // 8, j % 8])
    both = b.compute(
        "both", (N, 64), lambda i, j: Select(less(j, 24), flat[i, smallest(j, 23)], y[i, largest(j - 24, 0)])
    )
    out = b.compute("out", (64, N), lambda j, i: both[i, j])
    check(b.finish(out), [[1], [7], [128]], rule="points")


def test_rope_reads_a_table_at_loaded_positions(check: Check) -> None:
    b = ProgramBuilder("rope")
    x, table, at = b.input("x", (N, 9, 64), "f32"), b.input("table", (2048, 64), "f32"), b.input("at", (N,), "i32")
    y = b.compute(
        "y",
        (N, 9, 64),
        lambda i, h, d: Select(
            less(d, 32),
            x[i, h, d] * table[at[i], d % 32] - x[i, h, (d + 32) % 64] * table[at[i], d % 32 + 32],
            x[i, h, d] * table[at[i], d % 32] + x[i, h, (d + 32) % 64] * table[at[i], d % 32 + 32],
        ),
    )
    positions = lambda s: (np.arange(s[N]) * 17 % 2048).astype(np.int32)  # noqa: E731
    check(b.finish(y), [[1], [5], [128]], {"at": positions}, rule="points")


def test_append_overwrites_the_cache(check: Check) -> None:
    b = ProgramBuilder("kv_append")
    cache = b.input("cache", (2, 64, 3, 16), "f32")
    k, seq, pos = b.input("k", (N, 48), "f32"), b.input("seq", (N,), "i32"), b.input("pos", (N,), "i32")
    out = b.scatter("out", cache, (N, 3, 16), lambda i, h, d: (seq[i], pos[i], h, d), lambda i, h, d: k[i, h * 16 + d])
    given = {
        "seq": lambda s: (np.arange(s[N]) % 2).astype(np.int32),
        "pos": lambda s: (np.arange(s[N]) // 2).astype(np.int32),
    }
    source = check(b.finish(out), [[1], [7], [128]], given, rule="points")
    assert source.access == ("read_write", "read", "read", "read")


def test_in_place_addition(check: Check) -> None:
    b = ProgramBuilder("add")
    x, y = b.input("x", (N, 33), "f32"), b.input("y", (N, 33), "f32")
    out = b.scatter("out", x, (N, 33), lambda i, j: (i, j), lambda i, j: x[i, j] + y[i, j])
    check(b.finish(out), [[1], [128]], rule="points")


def test_in_place_reads_of_other_points_are_refused() -> None:
    b = ProgramBuilder("shift")
    x = b.input("x", (N, 33), "f32")
    out = b.scatter("out", x, (N, 32), lambda i, j: (i, j), lambda i, j: x[i, j + 1])
    with pytest.raises(WebrelaxError, match="overwrites"):
        schedule(b.finish(out))


def test_embedding_with_decode(check: Check) -> None:
    b = ProgramBuilder("embed")
    words, scales, tokens = (
        b.input("words", (100 * 144,), "u32"),
        b.input("scales", (900,), "u32"),
        b.input("t", (N,), "i32"),
    )

    table = b.compute(
        "table",
        (100, 576),
        lambda r, k: (
            Cast("f32", Cast("i32", words[(r * 576 + k) // 4] << Cast("u32", Index(24 - k % 4 * 8))) >> 24)
            * half(scales[(r * 576 + k) // 64] >> Cast("u32", Index((r * 576 + k) // 32 % 2 * 16)))
        ),
    )
    y = b.compute("y", (N, 576), lambda i, k: table[tokens[i], k])
    given = {
        "t": lambda s: (np.arange(s[N]) * 7 % 100).astype(np.int32),
        "scales": lambda s: np.random.default_rng(0).standard_normal(1800).astype(np.float16).view(np.uint32),
    }
    check(b.finish(y), [[1], [3]], given, rule="points")


def test_subnormal_halves(check: Check) -> None:
    b = ProgramBuilder("halves")
    x = b.input("x", (1024 * 31 * 2,), "u32")
    y = b.compute("y", (1024 * 31 * 2,), lambda i: half(x[i]))

    def finite(s: object) -> np.ndarray:
        magnitudes = np.arange(1024 * 31, dtype=np.uint32)
        return np.concatenate([magnitudes, magnitudes | 0x8000])

    check(b.finish(y), [[]], {"x": finite}, tolerance=0)


def test_serial_fallback(check: Check) -> None:
    """Softmax of scores that are themselves reductions, over a symbolic length."""
    b = ProgramBuilder("attention")
    q, k = b.input("q", (N, 8), "f32"), b.input("k", (M + 1, 8), "f32")
    s = b.reduce("s", (N, M + 1), (8,), lambda i, j, d: q[i, d] * k[j, d])
    top = b.reduce("top", (N,), (M + 1,), lambda i, j: s[i, j], MAX)
    total = b.reduce("total", (N,), (M + 1,), lambda i, j: exp(s[i, j] - top[i]))
    y = b.compute("y", (N, M + 1), lambda i, j: exp(s[i, j] - top[i]) / total[i])
    check(b.finish(y), [[0, 1], [6, 5], [40, 3]], rule="serial")


def test_negative_operands_of_division(check: Check) -> None:
    b = ProgramBuilder("floor")
    x = b.input("x", (40,), "f32")
    y = b.compute("y", (40,), lambda i: Cast("f32", Index((i - 20) // 3)) + Cast("f32", Index((i - 20) % 3)) * 100)
    z = b.compute("z", (40,), lambda i: Cast("f32", Index((i - 20) // 4)) + Cast("f32", Index((i - 20) % 4)) * x[i])
    check(b.finish(y, z), [[]], rule="points")


def test_many_points_use_two_dimensions() -> None:
    b = ProgramBuilder("many")
    x = b.input("x", (1 << 24, 1), "f32")
    y = b.compute("y", (1 << 24, 1), lambda i, j: x[i, j] + 1)
    kernel = schedule(b.finish(y))
    assert [str(e) for e in kernel.grid] == ["65535", "2", "1"]


def test_exponentials_are_clamped(check: Check) -> None:
    b = ProgramBuilder("extremes")
    x = b.input("x", (8,), "f32")
    y = b.compute("y", (8,), lambda i: 1 / (exp(x[i] * 1e6) + 1) + maximum(x[i], Literal(-3.4e38, "f32")))
    z = b.compute("z", (8,), lambda i: Unary("tanh", x[i] * 1e6))
    check(b.finish(y, z), rule="points")


def test_condition_on_symbols(check: Check) -> None:
    b = ProgramBuilder("mask")
    x = b.input("x", (N, M + N), "f32")
    y = b.compute("y", (N, M + N), lambda i, j: Select(less_equal(j, M + i), x[i, j], Literal(-1e30, "f32")))
    check(b.finish(y), [[0, 1], [5, 3], [2047, 128]], rule="points")


def test_large_points(check: Check) -> None:
    b = ProgramBuilder("large")
    x = b.input("x", (1 << 24, 1), "u32")
    y = b.compute("y", ((1 << 24) + 5,), lambda i: x[i % (1 << 24), 0] + 1)
    check(b.finish(y), rule="points")
