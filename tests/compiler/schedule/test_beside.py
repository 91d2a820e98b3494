"""Independent computations in one kernel."""

from __future__ import annotations

import re

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.schedule import combining_refusal, rule_for, schedule
from webrelax.compiler.schedule.components import components
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.target import WEBGPU, Target
from webrelax.compiler.tir import MAX, Program, ProgramBuilder, exp, rsqrt
from webrelax.compiler.wgsl import emit

from .conftest import Check
from .models import byte_words, nibble_words, nibbles, signed_bytes

N = Var("n", 1, 128)
M = Var("m", 0, 2047)
EDGES = [[1], [31], [33], [128]]


def projections(n: Expr | int, columns: int = 96) -> Program:
    """Query, key and value: the value's weight has another format."""
    b = ProgramBuilder("projections")
    x = b.input("x", (n, columns), "f32")
    results = []
    for name, rows, weight in (("q", 96, nibbles), ("k", 32, nibbles), ("v", 32, signed_bytes)):
        _, w = weight(b, rows, columns, f"w_{name}")
        results.append(b.reduce(name, (n, rows), (columns,), lambda i, o, k, w=w: x[i, k] * w[o, k]))
    return b.finish(*results)


WORDS = {
    "w_q": lambda s: nibble_words(96, 96, 1),
    "w_k": lambda s: nibble_words(32, 96, 2),
    "w_v": lambda s: byte_words(32, 96, 3),
}


@pytest.mark.parametrize("n", [1, N])
def test_projections(check: Check, n: Expr | int) -> None:
    program = projections(n)
    assert [[b.name for b in part.inputs] for part in components(program)] == [["x", "w_q"], ["x", "w_k"], ["x", "w_v"]]
    check(program, [()] if n == 1 else EDGES, WORDS, rule="beside", most_bytes=8192 if n == 1 else 16384)


def test_appends_of_keys_and_values(check: Check) -> None:
    b = ProgramBuilder("appends")
    keys, values = (b.input(name, (1, 256, 3, 8), "f32") for name in ("keys", "values"))
    k, v = (b.input(name, (N, 3, 8), "f32") for name in ("k", "v"))
    where, who = b.input("positions", (N,), "i32"), b.input("sequences", (N,), "i32")
    after_keys = b.scatter(
        "after_keys", keys, (N, 3, 8), lambda i, h, d: (who[i], where[i], h, d), lambda i, h, d: k[i, h, d] * 2
    )
    after_values = b.scatter(
        "after_values", values, (N, 3, 8), lambda i, h, d: (who[i], where[i], h, d), lambda i, h, d: v[i, h, d]
    )
    program = b.finish(after_keys, after_values)
    assert combining_refusal(program, WEBGPU) is None
    data = {
        "positions": lambda s: np.arange(s[N], dtype=np.int32) + 5,
        "sequences": lambda s: np.zeros(s[N], np.int32),
    }
    check(program, [[1], [3], [100]], data)


def test_appends_and_a_projection(check: Check) -> None:
    """A scatter, and sums, of different sizes of workgroups."""
    b = ProgramBuilder("mixed")
    x, cache, new = b.input("x", (N, 64), "f32"), b.input("cache", (256, 24), "f32"), b.input("new", (N, 24), "f32")
    where = b.input("positions", (N,), "i32")
    w = b.input("w", (40, 64), "f32")
    after = b.scatter("after", cache, (N, 24), lambda i, d: (where[i], d), lambda i, d: new[i, d])
    y = b.reduce("y", (N, 40), (64,), lambda i, o, k: x[i, k] * w[o, k])
    program = b.finish(after, y)
    assert rule_for(program).name == "beside"
    check(program, [[1], [3], [100]], {"positions": lambda s: np.arange(s[N], dtype=np.int32)[::-1].copy()})


def test_different_kinds(check: Check) -> None:
    b = ProgramBuilder("kinds")
    x, g = b.input("x", (N, 100), "f32"), b.input("g", (100,), "f32")
    squares = b.reduce("squares", (N,), (100,), lambda i, k: x[i, k] * x[i, k])
    y = b.compute("y", (N, 100), lambda i, j: x[i, j] * rsqrt(squares[i] * 0.01 + 1e-5) * g[j])
    top = b.reduce("top", (N,), (100,), lambda i, k: x[i, k], MAX)
    z = b.compute("z", (M + 1, N), lambda i, j: exp(x[j, 0]))
    program = b.finish(y, top, z)
    assert len(components(program)) == 3
    check(program, [[0, 1], [7, 31], [2047, 128]])


def test_more_workgroups_than_a_dimension_holds(check: Check) -> None:
    b = ProgramBuilder("large")
    x, y = b.input("x", (70_000, 3), "f32"), b.input("y", (N, 200), "f32")
    u = b.reduce("u", (70_000, 2), (3,), lambda i, j, k: x[i, k], MAX)
    v = b.reduce("v", (N, 1), (200,), lambda i, j, k: y[i, k])
    w = b.compute("w", (N, 200), lambda i, j: y[i, j] - v[i, 0])
    check(b.finish(u, w), [[1], [128]])


def test_what_overwrites_anothers_input_belongs_to_it() -> None:
    b = ProgramBuilder("tied")
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    u = b.scatter("u", x, (8,), lambda i: (i,), lambda i: x[i] + y[i])
    v = b.compute("v", (8,), lambda i: x[i] - y[i])
    assert len(components(b.finish(u, v))) == 1


def test_what_can_be_combined() -> None:
    assert combining_refusal(projections(1), WEBGPU) is None
    # Three tiled products are too much text.
    refusal = combining_refusal(projections(N), WEBGPU)
    assert refusal
    size = re.fullmatch(r"its text would be about (\d+) bytes, 7800 are allowed", refusal)
    assert size
    table = {symbol: at for at, symbol in enumerate(projections(N).symbols)}
    assert int(size[1]) == pytest.approx(len(emit(schedule(projections(N)), table, 4).text), rel=0.4)
    assert combining_refusal(projections(1, 1536), WEBGPU) is None
    refusal = combining_refusal(projections(1, 1536), Target(workgroup_memory=64))
    assert refusal
    assert "bytes of workgroup memory, webgpu promises 64" in refusal
    with pytest.raises(WebrelaxError, match="workgroup memory"):
        schedule(projections(1, 1536), Target(workgroup_memory=64))
