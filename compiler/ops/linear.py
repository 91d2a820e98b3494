"""Matrix products and row reductions: linear, softmax, rms_norm, row_sum."""

from __future__ import annotations

from ..ir import Annotation, Operator, Tensor
from ..symbolic import Expr, as_int
from ..tir import MAX, Cast, Index, Literal, Program, ProgramBuilder, Scalar, exp, rsqrt
from .arguments import Arguments, Attributes, count, dim, dtype_of, known, rows, same, same_dtype, tensor, tensors


def _deduce_linear(arguments: Arguments, _: Attributes) -> Annotation:
    x, weight = tensors(arguments, "x", "weight")
    tensor(weight, "weight", ndim=2)
    dtype = same_dtype(x, weight)
    if x.ndim == 0:
        raise ValueError("x must have at least one dimension")
    same(dim(x, -1), dim(weight, 1), "columns of x and weight")
    if x.shape is None or weight.shape is None:
        return Tensor(dtype=dtype, ndim=x.ndim)
    return Tensor((*x.shape[:-1], weight.shape[0]), dtype)


def _lower_linear(arguments: Arguments, _: Attributes) -> Program:
    """y[.., o] = sum over k of x[.., k] * w[o, k]."""
    x, weight = tensors(arguments, "x", "weight")
    b = ProgramBuilder("linear")
    left = b.input("x", known(x, "x"), dtype_of(x, "x"))
    right = b.input("w", known(weight, "weight"), dtype_of(weight, "weight"))
    outputs, inner = known(weight, "weight")
    shape = (*known(x, "x")[:-1], outputs)
    return b.finish(b.reduce("y", shape, (inner,), lambda *i: left[(*i[:-2], i[-1])] * right[i[-2], i[-1]]))


def _deduce_softmax(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "x")
    return rows(arguments[0], "x")


def _lower_softmax(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    shape = known(x, "x")
    outer, inner = shape[:-1], shape[-1:]
    b = ProgramBuilder("softmax")
    source = b.input("x", shape, "f32")
    top = b.reduce("top", outer, inner, lambda *i: source[i], MAX)
    total = b.reduce("total", outer, inner, lambda *i: exp(source[i] - top[i[:-1]]))
    return b.finish(b.compute("y", shape, lambda *i: exp(source[i] - top[i[:-1]]) / total[i[:-1]]))


def _deduce_rms_norm(arguments: Arguments, attributes: Attributes) -> Annotation:
    count(arguments, "x", "weight")
    x, weight = rows(arguments[0], "x"), tensor(arguments[1], "weight", ndim=1, dtype="f32")
    same(dim(x, -1), dim(weight, 0), "columns of x and weight")
    float(attributes["eps"])
    return x


def _lower_rms_norm(arguments: Arguments, attributes: Attributes) -> Program:
    x, weight = tensors(arguments, "x", "weight")
    shape = known(x, "x")
    outer, inner = shape[:-1], shape[-1:]
    b = ProgramBuilder("rms_norm")
    source, scale = b.input("x", shape, "f32"), b.input("w", known(weight, "weight"), "f32")
    squares = b.reduce("squares", outer, inner, lambda *i: source[i] * source[i])

    def element(*i: Expr) -> Scalar:
        mean = squares[i[:-1]] / as_float(inner[0])
        return source[i] * rsqrt(mean + attributes["eps"]) * scale[i[-1]]

    return b.finish(b.compute("y", shape, element))


def as_float(extent: Expr) -> Scalar:
    """A dimension as an f32 scalar."""
    size = as_int(extent)
    return Cast("f32", Index(extent)) if size is None else Literal(float(size), "f32")


def _deduce_row_sum(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "x")
    x = rows(arguments[0], "x")
    if x.shape is None:
        return Tensor(dtype=x.dtype, ndim=None if x.ndim is None else x.ndim - 1)
    return Tensor(x.shape[:-1], x.dtype)


def _lower_row_sum(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    shape = known(x, "x")
    b = ProgramBuilder("row_sum")
    source = b.input("x", shape, "f32")
    return b.finish(b.reduce("y", shape[:-1], shape[-1:], lambda *i: source[i]))


linear = Operator("linear", _deduce_linear, _lower_linear)
softmax = Operator("softmax", _deduce_softmax, _lower_softmax)
rms_norm = Operator("rms_norm", _deduce_rms_norm, _lower_rms_norm)
row_sum = Operator("row_sum", _deduce_row_sum, _lower_row_sum)
