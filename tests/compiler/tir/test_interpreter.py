"""The interpreter against plain NumPy: scalars, reductions, blocks, scatters, and the memory of constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.symbolic import Expr, Var, as_expr, maximum, minimum
from webrelax.compiler.tir import (
    ARGMAX,
    MAX,
    SUM,
    Axis,
    Binary,
    Bitcast,
    Buffer,
    Cast,
    Compare,
    Index,
    Literal,
    Load,
    Program,
    ProgramBuilder,
    Reducer,
    Scalar,
    Select,
    Stage,
    Unary,
    half,
    less,
    less_equal,
)
from webrelax.compiler.tir import interpreter as module
from webrelax.compiler.tir.interpreter import ConstantCache, execute, run

Array = np.ndarray[Any, Any]
N = Var("n")
LOOP = Var("i0", 0, 4)


@pytest.fixture(params=[1 << 23, 1, 7], ids=["whole", "elements", "blocks of 7"], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", request.param)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, dtype: str = "int32") -> Array:
    low, high = (-(2**31), 2**31) if dtype == "int32" else (0, 2**32)
    return np.random.default_rng(1).integers(low, high, shape).astype(dtype)


def elementwise(body: Callable[..., Scalar], *arrays: Array) -> Array:
    """Applies a scalar expression to arrays of one shape."""
    names = {"float32": "f32", "int32": "i32", "uint32": "u32", "float16": "f16"}
    b = ProgramBuilder("p")
    handles = [b.input(f"x{at}", (N,), names[str(a.dtype)]) for at, a in enumerate(arrays)]
    program = b.finish(b.compute("y", (N,), lambda i: body(*(h[i] for h in handles))))
    (result,) = run(program, arrays, [len(arrays[0])])
    return result


FLOATS = normal(29), normal(29, seed=1)
SIGNED = integers(29), integers(29)[::-1].copy()
WORDS = integers(29, dtype="uint32"), integers(29, dtype="uint32")[::-1].copy()
BINARY: list[tuple[str, Callable[[Array, Array], Any]]] = [
    ("add", lambda a, b: a + b),
    ("sub", lambda a, b: a - b),
    ("mul", lambda a, b: a * b),
    ("max", np.maximum),
    ("min", np.minimum),
]


@pytest.mark.parametrize(("op", "expected"), BINARY)
@pytest.mark.parametrize("pair", [FLOATS, SIGNED, WORDS], ids=["f32", "i32", "u32"])
def test_arithmetic(op: str, expected: Callable[[Array, Array], Array], pair: tuple[Array, Array]) -> None:
    actual = elementwise(lambda a, b: Binary(op, a, b), *pair)
    assert (actual == expected(*pair)).all()
    assert actual.dtype == pair[0].dtype


@pytest.mark.parametrize("pair", [SIGNED, WORDS], ids=["i32", "u32"])
def test_bits(pair: tuple[Array, Array]) -> None:
    a, b = pair
    assert (elementwise(lambda x, y: x & y, a, b) == a & b).all()
    assert (elementwise(lambda x, y: x | y, a, b) == a | b).all()
    assert (elementwise(lambda x, y: Binary("xor", x, y), a, b) == a ^ b).all()


@pytest.mark.parametrize("amount", [0, 1, 7, 31])
def test_shifts(amount: int) -> None:
    signed, words = SIGNED[0], WORDS[0]
    assert (elementwise(lambda x: x >> amount, signed) == signed >> amount).all()  # keeps the sign
    assert (elementwise(lambda x: x >> amount, words) == words >> amount).all()
    wrapped = (words.astype(np.uint64) << np.uint64(amount)).astype(np.uint32)
    assert (elementwise(lambda x: x << amount, words) == wrapped).all()
    assert (elementwise(lambda x: x << amount, words.view(np.int32)) == wrapped.view(np.int32)).all()
    amounts = np.full(29, amount, np.uint32)
    assert (elementwise(lambda x, s: x >> s, words, amounts) == words >> amount).all()


def test_division() -> None:
    a, b = np.array([7, -7, 7, -7, 0], np.int32), np.array([2, 2, -2, -2, 5], np.int32)
    assert elementwise(lambda x, y: x / y, a, b).tolist() == [3, -3, -3, 3, 0]  # towards zero, as WGSL and C
    assert (elementwise(lambda x, y: x / y, *FLOATS) == FLOATS[0] / FLOATS[1]).all()
    big = np.array([2**32 - 1], np.uint32)
    assert elementwise(lambda x: x / 3, big).tolist() == [(2**32 - 1) // 3]


def test_functions() -> None:
    x = np.abs(FLOATS[0]) + 0.1
    for op in ("exp", "log", "sqrt", "tanh", "floor", "abs"):
        np.testing.assert_allclose(elementwise(lambda v, op=op: Unary(op, v), x), getattr(np, op)(x), rtol=1e-6)
    np.testing.assert_allclose(elementwise(lambda v: Unary("rsqrt", v), x), 1 / np.sqrt(x), rtol=1e-6)
    np.testing.assert_allclose(elementwise(lambda v: Binary("pow", v, Literal(2.5, "f32")), x), x**2.5, rtol=1e-5)
    assert (elementwise(lambda v: -v, x) == -x).all()
    assert (elementwise(lambda v: 1 - 2 * v + 3 / v, x) == 1 - 2 * x + 3 / x).all()


def test_comparison_and_select() -> None:
    a, b = FLOATS
    for op, expected in (("lt", a < b), ("le", a <= b), ("eq", a == b), ("ne", a != b)):
        actual = elementwise(lambda x, y, op=op: Select(Compare(op, x, y), x, y), a, b)
        assert (actual == np.where(expected, a, b)).all()
    assert (elementwise(lambda x: Select(less(x, 0.0), -x, x), a) == np.abs(a)).all()


def test_conversion() -> None:
    floats = np.array([1.9, -1.9, 0.0, 300.5], np.float32)
    assert elementwise(lambda x: Cast("i32", x), floats).tolist() == [1, -1, 0, 300]
    assert elementwise(lambda x: Cast("f32", x), np.array([2**31 - 1, -5], np.int32)).tolist() == [2.0**31, -5]
    assert (elementwise(lambda x: Cast("f16", x), floats) == floats.astype(np.float16)).all()
    assert elementwise(lambda x: Cast("u32", x), np.array([-1], np.int32)).tolist() == [2**32 - 1]


def test_bitcast_between_words_and_floats() -> None:
    words = WORDS[0]
    assert (elementwise(lambda x: Bitcast("f32", x), words).view(np.uint32) == words).all()
    assert (elementwise(lambda x: Bitcast("u32", x), words.view(np.float32)) == words).all()
    b = ProgramBuilder("p")
    one = b.input("one", (), "u32")
    program = b.finish(b.compute("y", (2, 3), lambda i, j: Bitcast("f32", one[()]) + Cast("f32", Index(i + j))))
    (result,) = run(program, [np.array(0x3F800000, np.uint32)])
    assert result.tolist() == [[1, 2, 3], [2, 3, 4]]


def test_every_half_is_widened_exactly() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32) | np.uint32(0xABCD0000)  # the high half is ignored
    b = ProgramBuilder("p")
    x = b.input("x", (1 << 16,), "u32")
    program = b.finish(b.compute("y", (1 << 16,), lambda i: half(x[i])))
    values = np.empty(1 << 16, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 1 << 20)
        execute(program, [bits], [values])
    sign, exponent, fraction = bits >> 15 & 1, bits >> 10 & 31, (bits & 1023).astype(np.float64)
    subnormal = exponent == 0
    expected = np.where(subnormal, fraction * 2.0**-24, (1 + fraction / 1024) * 2.0 ** (exponent.astype(float) - 15))
    expected = np.where(sign == 1, -expected, expected)
    finite = exponent < 31
    assert (values[finite] == expected[finite]).all()
    assert np.signbit(values[0x8000])
    assert np.isinf(values[[0x7C00, 0xFC00]]).all()
    assert np.isnan(values[~finite & (fraction != 0)]).all()


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (LOOP * 3 + N, lambda i, n: i * 3 + n),
        (LOOP // 2, lambda i, n: i // 2),
        ((LOOP - 3) // 2, lambda i, n: (i - 3) // 2),
        ((LOOP - 3) % 2, lambda i, n: (i - 3) % 2),
        (minimum(LOOP, N, 2), lambda i, n: min(i, n, 2)),
        (maximum(LOOP - 2, 0), lambda i, n: max(i - 2, 0)),
        (LOOP * LOOP * N - 1, lambda i, n: i * i * n - 1),
        (as_expr(4), lambda i, n: 4),
    ],
)
def test_index_expressions_are_values(expr: Expr, expected: Callable[[int, int], int]) -> None:
    stage = Stage(("y",), (Axis(LOOP, as_expr(5)),), (LOOP,), (Index(expr),))
    program = Program("p", (), (Buffer("y", (as_expr(5),), "i32"),), (stage,), symbols=(N,))
    assert run(program, [], [3])[0].tolist() == [expected(i, 3) for i in range(5)]


def product_program(x: Sequence[Expr | int], w: Sequence[Expr | int]) -> Program:
    """y[i0, i1] = sum over k0 < n of x[..] * w[..], where 'i', 'o' and 'k' say which loop an index is."""
    b = ProgramBuilder("p")
    left, right = b.input("x", x, "f32"), b.input("w", w, "f32")
    return b.finish(b.reduce("y", (x[0], w[0]), (x[1],), lambda i, o, k: left[i, k] * right[o, k]))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_contraction(n: int) -> None:
    x, w = normal(3, n), normal(4, n, seed=1)
    (y,) = run(product_program((3, N), (4, N)), [x, w], [n])
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-5, atol=1e-6)


def test_contraction_where_factors_lack_loops() -> None:
    x, w, s = normal(3, 7), normal(7, seed=1), normal(1, seed=2)
    b = ProgramBuilder("p")
    left, right, scale = b.input("x", (3, 7), "f32"), b.input("w", (7,), "f32"), b.input("s", (1,), "f32")
    vector = b.reduce("vector", (3,), (7,), lambda i, k: left[i, k] * right[k])
    repeated = b.reduce("repeated", (3, 2), (7,), lambda i, j, k: left[i, 0] * right[1])
    batch = b.reduce("batch", (3, 2), (7, 2), lambda i, j, k, m: left[i, k] * left[i, m])
    scaled = b.reduce("scaled", (3,), (7,), lambda i, k: (left[i, k] + 1) * (right[k] * scale[0]))
    both = b.reduce("both", (), (3, 7), lambda i, k: left[i, k] * left[i, k])
    results = run(b.finish(vector, repeated, batch, scaled, both), [x, w, s])
    expected = [
        x @ w,
        np.repeat(x[:, :1] * w[1] * 7, 2, 1),
        np.repeat((x.sum(1) * (x[:, 0] + x[:, 1]))[:, None], 2, 1),
        (x + 1) @ (w * s),
        (x * x).sum(),
    ]
    for actual, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_sums_and_maxima(n: int) -> None:
    x = normal(4, n, 3)
    b = ProgramBuilder("p")
    source = b.input("x", (4, N, 3), "f32")
    total = b.reduce("total", (4,), (N, 3), lambda i, k, m: source[i, k, m])
    plain = b.reduce("plain", (4, 3), (N,), lambda i, j, k: source[i, 0, 0] + 0.0)
    top = b.reduce("top", (4, 3), (N,), lambda i, j, k: source[i, k, j], MAX)
    low = b.reduce("low", (3,), (4, N), lambda j, i, k: source[i, k, j], Reducer("min", (Literal(9.0, "f32"),)))
    results = run(b.finish(total, plain, top, low), [x], [n])
    np.testing.assert_allclose(results[0], x.sum((1, 2)), rtol=1e-5, atol=1e-5)
    if n:
        np.testing.assert_allclose(results[1], np.repeat(x[:, :1, 0] * n, 3, 1), rtol=1e-5)
        assert (results[2] == x.max(1)).all()
        assert (results[3] == x.min((0, 1))).all()
    else:
        assert (results[1] == 0).all()
        assert (results[2] == np.float32(-3.4028234663852886e38)).all()
        assert (results[3] == 9).all()


def test_sum_of_integers() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", (5, 7), "i32")
    whole = Reducer("sum", (Literal(0, "i32"),))
    program = b.finish(b.reduce("y", (5,), (7,), lambda i, k: x[i, k] * x[i, k], whole))
    values = np.arange(35, dtype=np.int32).reshape(5, 7)
    (y,) = run(program, [values])
    assert y.dtype == np.int32
    assert (y == (values * values).sum(1)).all()


def argmax_program(shape: Sequence[Expr | int]) -> Program:
    rows, columns = map(as_expr, shape)
    i, k = Var("i0"), Var("k0")
    stage = Stage(
        ("value", "where"), (Axis(i, rows),), (i,), (Load("x", (i, k), "f32"), Index(k)), (Axis(k, columns),), ARGMAX
    )
    outputs = (Buffer("value", (rows,), "f32"), Buffer("where", (rows,), "i32"))
    return Program("argmax", (Buffer("x", (rows, columns), "f32"),), outputs, (stage,), symbols=(N,))


@pytest.mark.parametrize("n", [0, 1, 13])
def test_argmax_carries_a_pair_and_takes_the_first_of_equals(n: int) -> None:
    x = np.random.default_rng(0).integers(0, 3, (5, n)).astype(np.float32)
    value, where = run(argmax_program((5, N)), [x], [n])
    assert where.dtype == np.int32
    if n:
        assert (value == x.max(1)).all()
        assert (where == x.argmax(1)).all()
    else:
        assert (where == 0).all()


def test_gather_by_a_loaded_index() -> None:
    b = ProgramBuilder("p")
    table, outer, inner = b.input("t", (9,), "f32"), b.input("o", (N,), "i32"), b.input("q", (5,), "i32")
    program = b.finish(b.compute("y", (N,), lambda i: table[inner[outer[i]]] + Cast("f32", outer[i])))
    t, o, q = normal(9), np.array([4, 0, 2], np.int32), np.array([8, 1, 3, 5, 0], np.int32)
    assert (run(program, [t, o, q], [3])[0] == t[q[o]] + o.astype(np.float32)).all()


def test_loads_of_an_arm_that_is_not_taken_may_be_out_of_range() -> None:
    b = ProgramBuilder("p")
    x, empty = b.input("x", (N,), "f32"), b.input("e", (0,), "f32")
    program = b.finish(
        b.compute("y", (N,), lambda i: Select(less_equal(1, i), x[i - 1], Literal(5.0, "f32"))),
        b.compute("z", (N,), lambda i: Select(less(i + 1, N), x[i + 1], x[i - N])),
        b.compute("u", (N,), lambda i: Select(less(i, 0), empty[i], x[i])),
    )
    for n in (0, 1, 4):
        values = normal(n)
        y, z, u = run(program, [values, np.empty(0, np.float32)], [n])
        assert (y == np.concatenate([[5], values])[:n]).all()
        assert (z == np.concatenate([values[1:], values[:1]])).all()
        assert (u == values).all()


def scatter_program() -> Program:
    b = ProgramBuilder("scatter")
    target, source, where = b.input("t", (N, 3), "f32"), b.input("x", (2, 3), "f32"), b.input("at", (2,), "i32")
    written = b.scatter("w", target, (2, 3), lambda i, j: (where[i], 2 - j), lambda i, j: source[i, j] * 2)
    return b.finish(written)


def test_scatter_in_place() -> None:
    target, source, where = normal(5, 3), normal(2, 3, seed=1), np.array([4, 1], np.int32)
    before = target.copy()
    execute(scatter_program(), [target, source, where], [target], [5])
    expected = before.copy()
    expected[where] = source[:, ::-1] * 2
    assert (target == expected).all()
    (fresh,) = run(scatter_program(), [before, source, where], [5])
    assert (fresh == expected).all()
    assert not np.shares_memory(fresh, before)


def test_scatter_of_nothing() -> None:
    b = ProgramBuilder("p")
    target, source = b.input("t", (4,), "f32"), b.input("x", (N,), "f32")
    program = b.finish(b.scatter("w", target, (N,), lambda i: ((i + 3) % 4,), lambda i: source[i]))
    x = normal(4)
    assert (run(program, [x, np.empty(0, np.float32)], [0])[0] == x).all()
    ring = run(program, [x, np.array([10, 20], np.float32)], {N: 2})[0]
    assert ring.tolist() == [20, x[1], x[2], 10]


def test_arrays_must_fit_their_buffers() -> None:
    program = product_program((3, N), (4, N))
    for x, w in ((normal(3, 5), normal(4, 6)), (normal(3, 5).astype(np.float64), normal(4, 5))):
        with pytest.raises(ValueError, match=r"p: \w: f32\[\d, n\] is \(\d, 5\) here, the array is"):
            run(program, [x, w], [5])
    target = normal(5, 3)
    with pytest.raises(ValueError, match="w overwrites t, it must be the same memory"):
        execute(scatter_program(), [target, normal(2, 3), np.zeros(2, np.int32)], [target.copy()], [5])
    with pytest.raises(ValueError, match="zip"):
        run(program, [normal(3, 5), normal(4, 5)], [5, 6])


def scaled_weights(rank: int, reads: str = "b") -> Program:
    """A product with (w + 1), which a cache may remember, read by the second or third of several loops."""
    b = ProgramBuilder("p")
    x, w = b.input("x", (2, 2, 3), "f32"), b.input("w", (2, 3), "f32")
    if rank == 1:
        return b.finish(b.reduce("y", (2,), (3,), lambda i, k: x[0, i, k] * (w[i, k] + 1)))
    if reads == "column":
        return b.finish(b.reduce("y", (2,) * rank, (3,), lambda *i: x[0, 0, i[-1]] * (w[i[0], 0] + 1)))
    return b.finish(b.reduce("y", (2, 2), (3,), lambda i, j, k: x[i, j, k] * (w[i if reads == "a" else j, k] + 1), SUM))


def test_constants_are_remembered_and_not_confused() -> None:
    cache = ConstantCache()
    x, weights = normal(2, 2, 3), [normal(2, 3, seed=seed) for seed in (1, 2)]
    for w in weights:
        w.flags.writeable = False
    for _ in range(2):
        for w in weights:
            kinds = ((1, "b"), (2, "a"), (2, "b"), (2, "column"), (3, "column"))
            for program in (scaled_weights(*kind) for kind in kinds):
                expected = run(program, [x, w])[0]
                actual = np.empty_like(expected)
                execute(program, [x, w], [actual], cache=cache)
                assert (actual == expected).all()
        known = len(cache.values)
        assert known > 0
    assert len(cache.values) == known  # the second round found everything


def test_only_read_only_arrays_are_remembered() -> None:
    cache, x, w = ConstantCache(), normal(2, 2, 3), normal(2, 3)
    result = np.empty((2,), np.float32)
    execute(scaled_weights(1), [x, w], [result], cache=cache)
    assert not cache.values
    w += 1
    execute(scaled_weights(1), [x, w], [result], cache=cache)
    assert (result == run(scaled_weights(1), [x, w])[0]).all()
