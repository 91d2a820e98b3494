"""Operators whose results have a size that only running them tells: unique, nonzero.

Both are made of ordinary tensor programs. One flags the elements that the result has, one counts them; the count
becomes a dimension (tensor_to_shape, match_cast), and one last program places the flagged elements. No program sorts:
each element counts those before it, in time quadratic in the number of elements.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir import Annotation, Atom, BlockBuilder, MatchCast, Operator, Shape, ShapeValue, Tensor, TensorToShape
from ..symbolic import Expr, Var, upper_bound
from ..tir import Compare, Index, Literal, Program, ProgramBuilder, Reducer, Scalar, Select, less
from .arguments import Arguments, Attributes, count, dtype_of, known, tensor, tensors
from .shape import flatten, unflatten

_COUNT = Reducer("sum", (Literal(0, "i32"),))
_YES, _NO = Literal(1, "i32"), Literal(0, "i32")


def _deduce_unique(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "x")
    return Tensor(dtype=tensor(arguments[0], "x", ndim=1).dtype, ndim=1)


def _expand_unique(b: BlockBuilder, args: tuple[Atom, ...], _: Attributes) -> Atom:
    """The distinct elements of x in ascending order, as numpy.unique gives them; x has no NaN."""
    (x,) = args
    flags = b.op(_first_of_equals, x)
    order = b.op(_number_below, x, flags)
    return _placed(b, flags, lambda size: b.op(_place, x, flags, order, size))


def _deduce_nonzero(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "x")
    x = tensor(arguments[0], "x")
    if x.ndim == 0:
        raise ValueError("x must have at least one dimension")
    return Tensor(dtype="i32", ndim=2)


def _expand_nonzero(b: BlockBuilder, args: tuple[Atom, ...], _: Attributes) -> Atom:
    """The indices of the elements that are not zero, one column each, in row-major order: ONNX's NonZero."""
    (x,) = args
    flags = b.op(_is_nonzero, b.op(flatten, x))
    order = b.op(_number_before, flags)
    shape = ShapeValue(known(x.annotation, "x"))
    return _placed(b, flags, lambda size: b.op(_place_indices, flags, order, shape, size))


def _placed(b: BlockBuilder, flags: Atom, place: Callable[[Atom], Atom]) -> Atom:
    """`place` with the number of flags as a shape, which has a variable of its own."""
    (most,) = known(flags.annotation, "flags")
    size = Var(b.fresh("found"), 0, upper_bound(most))
    total = b.emit(TensorToShape(b.op(_total, flags)), "total")
    b.match_cast(total, Shape((size,)), "counted")
    result = place(ShapeValue((size,)))
    # Whoever calls the operator knows the rank alone.
    annotation = result.annotation
    assert isinstance(annotation, Tensor)
    return b.emit(MatchCast(result, Tensor(dtype=annotation.dtype, ndim=annotation.ndim)), "placed")


def _deduce_flags(arguments: Arguments, _: Attributes) -> Annotation:
    return Tensor(tensor(arguments[0], "x", ndim=1).shape, "i32", ndim=1)


def _lower_first_of_equals(arguments: Arguments, _: Attributes) -> Program:
    """y[i] = 1 where no earlier element equals x[i], else 0."""
    (x,) = tensors(arguments, "x")
    (n,) = known(x, "x")
    b = ProgramBuilder("first_of_equals")
    source = b.input("x", (n,), dtype_of(x, "x"))
    earlier = b.reduce("earlier", (n,), (n,), lambda i, k: _and(less(k, i), _equal(source[k], source[i])), _COUNT)
    return b.finish(b.compute("y", (n,), lambda i: _flag(_equal(earlier[i], _NO))))


def _lower_number_below(arguments: Arguments, _: Attributes) -> Program:
    """y[i] = how many flagged elements are smaller than x[i]."""
    x = tensors(arguments, "x", "flags")[0]
    (n,) = known(x, "x")
    b = ProgramBuilder("number_below")
    source, flag = b.input("x", (n,), dtype_of(x, "x")), b.input("flags", (n,), "i32")
    return b.finish(b.reduce("y", (n,), (n,), lambda i, k: Select(less(source[k], source[i]), flag[k], _NO), _COUNT))


def _lower_is_nonzero(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    (n,) = known(x, "x")
    b = ProgramBuilder("is_nonzero")
    source = b.input("x", (n,), dtype_of(x, "x"))
    zero = Literal(0.0 if x.dtype in ("f32", "f16") else 0, dtype_of(x, "x"))
    return b.finish(b.compute("y", (n,), lambda i: Select(_equal(source[i], zero), _NO, _YES)))


def _lower_number_before(arguments: Arguments, _: Attributes) -> Program:
    """y[i] = how many of the elements before i are flagged."""
    (flags,) = tensors(arguments, "flags")
    (n,) = known(flags, "flags")
    b = ProgramBuilder("number_before")
    flag = b.input("flags", (n,), "i32")
    return b.finish(b.reduce("y", (n,), (n,), lambda i, k: Select(less(k, i), flag[k], _NO), _COUNT))


def _deduce_total(arguments: Arguments, _: Attributes) -> Annotation:
    tensor(arguments[0], "flags", ndim=1, dtype="i32")
    return Tensor((1,), "i32")


def _lower_total(arguments: Arguments, _: Attributes) -> Program:
    (flags,) = tensors(arguments, "flags")
    (n,) = known(flags, "flags")
    b = ProgramBuilder("total")
    flag = b.input("flags", (n,), "i32")
    return b.finish(b.reduce("y", (1,), (n,), lambda _, k: flag[k], _COUNT))


def _deduce_place(arguments: Arguments, _: Attributes) -> Annotation:
    size = arguments[3]
    assert isinstance(size, Shape)
    return Tensor(size.dims, tensor(arguments[0], "x").dtype, ndim=1)


def _lower_place(arguments: Arguments, _: Attributes) -> Program:
    """y[p] = the flagged element that p others come before."""
    x = tensors(arguments[:3], "x", "flags", "order")[0]
    (n,), sizes, dtype = known(x, "x"), known(arguments[3], "the result"), dtype_of(x, "x")
    b = ProgramBuilder("place")
    source, flag, before = b.input("x", (n,), dtype), b.input("flags", (n,), "i32"), b.input("order", (n,), "i32")
    zero = Literal(0.0 if dtype in ("f32", "f16") else 0, dtype)
    # A sum of one element and zeros is that element.
    return b.finish(
        b.reduce(
            "y",
            sizes,
            (n,),
            lambda p, k: _where(flag[k], before[k], p, source[k], zero),
            Reducer("sum", (zero,)),
        )
    )


def _deduce_place_indices(arguments: Arguments, _: Attributes) -> Annotation:
    shape, size = arguments[2:]
    assert isinstance(shape, Shape)
    assert isinstance(size, Shape)
    if shape.dims is None or size.dims is None:
        return Tensor(dtype="i32", ndim=2)
    return Tensor((len(shape.dims), *size.dims), "i32")


def _lower_place_indices(arguments: Arguments, _: Attributes) -> Program:
    """y[d, p] = index d of the flagged element that p others come before."""
    flags = tensors(arguments[:2], "flags", "order")[0]
    (n,), shape, sizes = known(flags, "flags"), known(arguments[2], "x"), known(arguments[3], "the result")
    b = ProgramBuilder("place_indices")
    flag, before = b.input("flags", (n,), "i32"), b.input("order", (n,), "i32")

    def element(d: Expr, p: Expr, k: Expr) -> Scalar:
        index: Scalar = _NO
        for at, part in reversed(list(enumerate(unflatten(k, shape)))):
            index = Select(_equal(Index(d), Literal(at, "i32")), Index(part), index)
        return _where(flag[k], before[k], p, index, _NO)

    return b.finish(b.reduce("y", (len(shape), *sizes), (n,), element, _COUNT))


def _equal(a: Scalar, b: Scalar) -> Scalar:
    return Compare("eq", a, b)


def _and(a: Scalar, b: Scalar) -> Scalar:
    return Select(a, _flag(b), _NO)


def _flag(condition: Scalar) -> Scalar:
    return Select(condition, _YES, _NO)


def _where(flag: Scalar, order: Scalar, place: Expr, value: Scalar, otherwise: Scalar) -> Scalar:
    return Select(_equal(flag, _YES), Select(_equal(order, Index(place)), value, otherwise), otherwise)


unique = Operator("unique", _deduce_unique, None, expand=_expand_unique)
nonzero = Operator("nonzero", _deduce_nonzero, None, expand=_expand_nonzero)
_first_of_equals = Operator("first_of_equals", _deduce_flags, _lower_first_of_equals)
_number_below = Operator("number_below", _deduce_flags, _lower_number_below)
_is_nonzero = Operator("is_nonzero", _deduce_flags, _lower_is_nonzero)
_number_before = Operator("number_before", _deduce_flags, _lower_number_before)
_total = Operator("total", _deduce_total, _lower_total)
_place = Operator("place", _deduce_place, _lower_place)
_place_indices = Operator("place_indices", _deduce_place_indices, _lower_place_indices)
