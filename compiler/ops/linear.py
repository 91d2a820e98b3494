"""Matrix products and row reductions: linear, softmax, rms_norm, row_sum."""

from __future__ import annotations

from ..ir import Annotation, Operator, Tensor
from ..tir import MAX, Literal, Program, ProgramBuilder, exp, rsqrt
from .arguments import Arguments, Attributes, dtype_of, known, rank, same, tensors


def _deduce_linear(arguments: Arguments, _: Attributes) -> Annotation:
    x, w = tensors(arguments, "x", "weight")
    rank(w, 2, "weight")
    if x.shape is None or w.shape is None:
        return Tensor(dtype=x.dtype, ndim=x.ndim)
    same(x.shape[-1], w.shape[1], "columns of x and weight")
    return Tensor((*x.shape[:-1], w.shape[0]), x.dtype)


def _lower_linear(arguments: Arguments, _: Attributes) -> Program:
    x, w = tensors(arguments, "x", "weight")
    b = ProgramBuilder("linear")
    left = b.input("x", known(x, "x"), dtype_of(x, "x"))
    right = b.input("w", known(w, "weight"), dtype_of(w, "weight"))
    rows, inner = known(w, "weight")
    shape = (*known(x, "x")[:-1], rows)
    return b.finish(b.reduce("y", shape, (inner,), lambda *i: left[(*i[:-2], i[-1])] * right[i[-2], i[-1]]))


def _same_as_first(arguments: Arguments, _: Attributes) -> Annotation:
    return tensors(arguments, *("x", "weight")[: len(arguments)])[0]


def _lower_softmax(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    shape = known(x, "x")
    rows, inner = shape[:-1], shape[-1:]
    b = ProgramBuilder("softmax")
    source = b.input("x", shape, "f32")
    top = b.reduce("top", rows, inner, lambda *i: source[i], MAX)
    total = b.reduce("total", rows, inner, lambda *i: exp(source[i] - top[i[:-1]]))
    return b.finish(b.compute("y", shape, lambda *i: exp(source[i] - top[i[:-1]]) / total[i[:-1]]))


def _lower_rms_norm(arguments: Arguments, attributes: Attributes) -> Program:
    x, w = tensors(arguments, "x", "weight")
    shape = known(x, "x")
    rows, inner = shape[:-1], shape[-1:]
    b = ProgramBuilder("rms_norm")
    source, weight = b.input("x", shape, "f32"), b.input("w", known(w, "weight"), "f32")
    squares = b.reduce("squares", rows, inner, lambda *i: source[i] * source[i])

    def element(*i):  # type: ignore[no-untyped-def]
        mean = squares[i[:-1]] / as_float(inner[0])
        return source[i] * rsqrt(mean + attributes["eps"]) * weight[i[-1]]

    return b.finish(b.compute("y", shape, element))


def as_float(extent):  # type: ignore[no-untyped-def]
    """A dimension as an f32 scalar."""
    from ..symbolic import as_int
    from ..tir import Cast, Index

    size = as_int(extent)
    return Cast("f32", Index(extent)) if size is None else Literal(float(size), "f32")


def _deduce_row_sum(arguments: Arguments, _: Attributes) -> Annotation:
    (x,) = tensors(arguments, "x")
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
softmax = Operator("softmax", _same_as_first, _lower_softmax)
rms_norm = Operator("rms_norm", _same_as_first, _lower_rms_norm)
row_sum = Operator("row_sum", _deduce_row_sum, _lower_row_sum)
