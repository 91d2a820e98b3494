"""Elementwise operators: unary ones, and binary ones with NumPy's broadcasting."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Annotation, Operator, Tensor
from ..symbolic import Expr, as_int, prove_equal
from ..tir import Binary, Literal, Program, ProgramBuilder, Scalar, Unary, exp, maximum
from .arguments import Arguments, Attributes, dtype_of, known, same_dtype, tensor, tensors


def _unary(name: str, body: Callable[[Scalar], Scalar], dtype: str | None = None) -> Operator:
    """`dtype`: the only element type that it takes."""

    def deduce(arguments: Arguments, _: Attributes) -> Annotation:
        (x,) = tensors(arguments, "x")
        return tensor(x, "x", dtype=dtype)

    def lower(arguments: Arguments, _: Attributes) -> Program:
        (x,) = tensors(arguments, "x")
        b = ProgramBuilder(name)
        source = b.input("x", known(x, "x"), dtype_of(x, "x"))
        return b.finish(b.compute("y", known(x, "x"), lambda *i: body(source[i])))

    return Operator(name, deduce, lower)


def broadcast_dim(a: Expr, b: Expr) -> Expr:
    """The dimension of a broadcast pair. Raises ValueError where neither is 1 and they are not provably equal."""
    if as_int(a) == 1:
        return b
    if as_int(b) == 1 or prove_equal(a, b):
        return a
    raise ValueError(f"dimensions {a} and {b} are neither provably equal nor 1")


def broadcast_shapes(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """NumPy's rule on symbolic shapes."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    lead = len(long) - len(short)
    return (*long[:lead], *(broadcast_dim(x, y) for x, y in zip(long[lead:], short, strict=True)))


def _binary(name: str, body: Callable[[Scalar, Scalar], Scalar]) -> Operator:
    def deduce(arguments: Arguments, _: Attributes) -> Annotation:
        x, y = tensors(arguments, "x", "y")
        dtype = same_dtype(x, y)
        if x.shape is None or y.shape is None:
            return Tensor(dtype=dtype, ndim=None if x.ndim is None or y.ndim is None else max(x.ndim, y.ndim))
        return Tensor(broadcast_shapes(x.shape, y.shape), dtype)

    def lower(arguments: Arguments, _: Attributes) -> Program:
        x, y = tensors(arguments, "x", "y")
        b = ProgramBuilder(name)
        shapes = known(x, "x"), known(y, "y")
        left, right = b.input("x", shapes[0], dtype_of(x, "x")), b.input("y", shapes[1], dtype_of(y, "y"))
        out = broadcast_shapes(*shapes)

        def element(*indices: Expr) -> Scalar:
            operands = []
            for handle, shape in ((left, shapes[0]), (right, shapes[1])):
                own = indices[len(indices) - len(shape) :]
                stretched = zip(own, shape, out[len(out) - len(shape) :], strict=True)
                operands.append(handle[tuple(0 if as_int(e) == 1 and as_int(o) != 1 else i for i, e, o in stretched)])
            return body(*operands)

        return b.finish(b.compute("z", out, element))

    return Operator(name, deduce, lower)


def _sigmoid(x: Scalar) -> Scalar:
    return Literal(1.0, "f32") / (exp(-x) + 1.0)


def _gelu_tanh(x: Scalar) -> Scalar:
    # Hendrycks and Gimpel, arXiv 1606.08415: the tanh approximation.
    inner = (x + x * x * x * 0.044715) * 0.7978845608028654
    return x * 0.5 * (Unary("tanh", inner) + 1.0)


add = _binary("add", lambda a, b: a + b)
subtract = _binary("subtract", lambda a, b: a - b)
multiply = _binary("multiply", lambda a, b: a * b)
divide = _binary("divide", lambda a, b: a / b)
maximum_of = _binary("maximum", lambda a, b: Binary("max", a, b))
exp_of = _unary("exp", exp, "f32")
relu = _unary("relu", lambda x: maximum(x, 0.0))
sigmoid = _unary("sigmoid", _sigmoid, "f32")
silu = _unary("silu", lambda x: x * _sigmoid(x), "f32")
gelu_tanh = _unary("gelu_tanh", _gelu_tanh, "f32")
tanh = _unary("tanh", lambda x: Unary("tanh", x), "f32")
negate = _unary("negate", lambda x: -x)
