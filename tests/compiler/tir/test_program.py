"""Building and printing tensor programs, and walking over their expressions."""

from __future__ import annotations

import pytest

from webrelax.compiler.ir.verify import verify_program
from webrelax.compiler.symbolic import Opaque, Var, as_expr
from webrelax.compiler.tir import (
    MAX,
    Cast,
    Compare,
    Index,
    Literal,
    Load,
    ProgramBuilder,
    Scalar,
    Select,
    as_scalar,
    direct_loads,
    exp,
    half,
    index_loads,
    less,
    loads,
    maximum,
    minimum,
    rsqrt,
    scalar_variables,
    substitute_scalar,
)

N = Var("n", 1, 128)


def test_printed() -> None:
    b = ProgramBuilder("everything")
    x, ids, words = b.input("x", (N, 8), "f32"), b.input("ids", (N,), "i32"), b.input("w", (4,), "u32")
    cache = b.input("cache", (64, 8), "f32")
    top = b.reduce("top", (N,), (8,), lambda i, k: x[i, k], MAX)
    y = b.compute("y", (N, 8), lambda i, j: Select(less(j, N), exp(x[i, j] - top[i]), half(words[j // 4] >> 16)))
    written = b.scatter("written", cache, (N, 8), lambda i, j: (ids[i], (j + 1) % 8), lambda i, j: -y[i, j])
    one = b.compute("one", (), lambda: rsqrt(maximum(minimum(x[0, 0], 1), as_scalar(N, "f32"))))
    program = b.finish(written, one)
    verify_program(program)
    assert str(program) == (
        "program everything(x: f32[n, 8], ids: i32[n], w: u32[4], cache: f32[64, 8], n)"
        " -> (written: f32[64, 8], one: f32[]):\n"
        "    written overwrites cache\n"
        "    local top: f32[n]\n"
        "    local y: f32[n, 8]\n"
        "    for i0 < n:\n"
        "        top[i0] = max over (k0 < 8) of x[i0, k0]\n"
        "    for i0 < n, i1 < 8:\n"
        "        y[i0, i1] = select(((i1) < (n)), exp((x[i0, i1] - top[i0])), bitcast_half((w[i1//4] >> u32(16))))\n"
        "    for i0 < n, i1 < 8:\n"
        "        written[ids[i0], (i1 + 1) % 8] = -y[i0, i1]\n"
        "    once:\n"
        "        one[] = rsqrt(max(min(x[0, 0], 1.0), f32((n))))\n"
    )


def test_symbols_are_those_of_shapes_loops_and_values() -> None:
    a, b_, c, d = (Var(name) for name in "abcd")
    b = ProgramBuilder("p")
    x = b.input("x", (d, 2), "f32")
    program = b.finish(b.reduce("y", (c,), (b_,), lambda i, k: x[a, 0] + Cast("f32", Index(i + k))))
    assert program.symbols == (a, b_, c, d)


def test_results_come_in_the_order_asked_for_and_the_rest_is_local() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", (4,), "f32")
    one, two, three = (b.compute(name, (4,), lambda i: x[i] + 1) for name in ("one", "two", "three"))
    program = b.finish(three, one)
    assert [buffer.name for buffer in program.outputs] == ["three", "one"]
    assert program.locals == (two.buffer,)
    assert program.buffer("two") == two.buffer
    with pytest.raises(KeyError, match="p has no buffer four"):
        program.buffer("four")


def test_mistakes_of_a_builder() -> None:
    b = ProgramBuilder("p")
    x, ids = b.input("x", (4, 4), "f32"), b.input("ids", (4,), "i32")
    y = b.compute("y", (4,), lambda i: x[i, i])
    with pytest.raises(ValueError, match=r"x: f32\[4, 4\] has 2 dimensions, not 1"):
        b.compute("z", (4,), lambda i: x[i])
    with pytest.raises(TypeError, match="an index is an integer expression or a loaded i32"):
        b.compute("z", (4,), lambda i: x[i, x[0, 0]])
    with pytest.raises(TypeError, match="an index is an integer expression or a loaded i32"):
        b.compute("z", (4,), lambda i: x[i, ids[i] + 1])
    with pytest.raises(ValueError, match="p: there is a buffer y already"):
        b.compute("y", (4,), lambda i: x[i, i])
    with pytest.raises(ValueError, match="p: z cannot hold f64"):
        b.input("z", (4,), "f64")
    with pytest.raises(ValueError, match="p: z cannot hold bool"):
        b.compute("z", (4,), lambda i: less(i, 2))
    with pytest.raises(ValueError, match="p: max of f32 cannot take i32"):
        b.reduce("z", (4,), (4,), lambda i, k: ids[k], MAX)
    with pytest.raises(ValueError, match="p: only an input can be overwritten, y is none"):
        b.scatter("z", y, (4,), lambda i: (i,), lambda i: x[i, i])
    with pytest.raises(ValueError, match="p: z holds f32, not i32"):
        b.scatter("z", x, (4,), lambda i: (i, i), lambda i: ids[i])
    with pytest.raises(ValueError, match="p does not compute x"):
        b.finish(x)


def test_plain_numbers_and_indices_become_scalars() -> None:
    assert as_scalar(2, "f32") == Literal(2.0, "f32")
    assert as_scalar(2, "u32") == Literal(2, "u32")
    assert as_scalar(N, "i32") == Index(N)
    assert as_scalar(N + 1, "f32") == Cast("f32", Index(N + 1))
    assert less(N, 3) == Compare("lt", Index(N), Literal(3, "i32"))
    x = Load("x", (), "f32")
    assert str(2 - x * 3 / 4 + (-x)) == "((2.0 - ((x[] * 3.0) / 4.0)) + -x[])"


def example() -> Scalar:
    i = Var("i")
    inner = Opaque(Load("perm", (i,), "i32"))
    ids = Opaque(Load("ids", (inner + N,), "i32"))
    return Load("table", (ids * 2, i), "f32") * as_scalar(Opaque(Load("ids", (as_expr(0),), "i32")) // 2, "f32")


def test_loads_are_told_apart_by_their_use() -> None:
    node = example()
    assert [load.buffer for load in direct_loads(node)] == ["table"]
    assert sorted(load.buffer for load in index_loads(node)) == ["ids", "ids", "perm"]
    assert sorted(load.buffer for load in loads(node)) == ["ids", "ids", "perm", "table"]
    assert {v.name for v in scalar_variables(node)} == {"i", "n"}


def test_substitution_reaches_into_loaded_indices() -> None:
    i = Var("i")
    node = substitute_scalar(example(), {i: i * 3, N: i})
    assert str(node) == "(table[ids[i + perm[i*3]]*2, i*3] * f32((ids[0]//2)))"


def test_literals_are_equal_by_their_bits() -> None:
    assert Literal(0.0, "f32") != Literal(-0.0, "f32")
    assert Literal(1, "i32") != Literal(1.0, "f32")
    assert Literal(float("nan"), "f32") == Literal(float("nan"), "f32")
