"""Random elementwise programs."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.tir import Binary, Cast, Handle, Index, Literal, ProgramBuilder, Scalar, Select, less

from .conftest import check_program

N = Var("n", 1, 40)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> object:
    """A nested tuple that `build` turns into a scalar over two inputs."""
    kind = draw(st.sampled_from(["x", "y", "number", "index"] if depth == 0 else ["binary", "select", "x", "y"]))
    if kind == "number":
        return kind, draw(st.floats(-4, 4, width=32))
    if kind == "index":
        return kind, draw(st.integers(-5, 5)), draw(st.sampled_from([1, 3, 4, 7]))
    if kind in "xy":
        return kind, draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 3, 5]))
    inner = expressions(depth - 1)
    if kind == "binary":
        return kind, draw(st.sampled_from(["add", "sub", "mul", "max", "min"])), draw(inner), draw(inner)
    return kind, draw(inner), draw(inner), draw(inner)


def build(tree: object, x: Handle, y: Handle, i: Expr, j: Expr) -> Scalar:
    assert isinstance(tree, tuple)
    match tree:
        case ("number", value):
            return Literal(value, "f32")
        case ("index", offset, divisor):
            return Cast("f32", Index((i - j + offset) // divisor)) + Cast("f32", Index((j - i + offset) % divisor))
        case ("x", offset, divisor):
            return x[i, (j + offset) // divisor % 6]
        case ("y", offset, divisor):
            return y[(j * divisor + offset) % 6, i]
        case ("binary", op, a, b):
            return Binary(op, build(a, x, y, i, j), build(b, x, y, i, j))
        case ("select", c, a, b):
            return Select(less(build(c, x, y, i, j), 0.25), build(a, x, y, i, j), build(b, x, y, i, j))
    raise AssertionError(tree)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expressions(), expressions(2), st.integers(1, 40))
def test_random_programs(first: object, second: object, n: int) -> None:
    b = ProgramBuilder("random")
    x, y = b.input("x", (N, 6), "f32"), b.input("y", (6, N), "f32")
    u = b.compute("u", (N, 6), lambda i, j: build(first, x, y, i, j))
    v = b.compute("v", (N, 6), lambda i, j: build(second, u, y, i, j))
    check_program(b.finish(u, v), [[n]], tolerance=2e-5)
