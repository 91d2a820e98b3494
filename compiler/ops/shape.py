"""Operators that move elements: reshape, flatten, transpose, take, concat, last_row, repeat."""

from __future__ import annotations

from ..ir import Annotation, Operator, Shape, Tensor
from ..symbolic import Expr, as_expr, as_int, prove_equal
from ..tir import Program, ProgramBuilder, Scalar, Select, less
from .arguments import Arguments, Attributes, dtype_of, known, rank, tensor, tensors


def product(dims: tuple[Expr, ...]) -> Expr:
    """The number of elements of a shape."""
    total = as_expr(1)
    for dim in dims:
        total = total * dim
    return total


def flat_index(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The row-major position."""
    flat = as_expr(0)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    return flat


def unflatten(flat: Expr, shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of a row-major position."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        indices.append(flat % extent)
        flat = flat // extent
    return (flat, *reversed(indices)) if shape else ()


def _reshape_target(arguments: Arguments) -> tuple[Tensor, Shape]:
    if len(arguments) != 2 or not isinstance(arguments[1], Shape):
        raise ValueError("takes a tensor and a shape")
    return tensor(arguments[0], "x"), arguments[1]


def _deduce_reshape(arguments: Arguments, _: Attributes) -> Annotation:
    x, target = _reshape_target(arguments)
    if target.dims is None:
        return Tensor(dtype=x.dtype, ndim=target.ndim)
    if x.shape is not None and not prove_equal(product(x.shape), product(target.dims)):
        difference = as_int(product(x.shape) - product(target.dims))
        if difference is not None:
            raise ValueError(f"{x} and {target} have different numbers of elements")
    return Tensor(target.dims, x.dtype)


def _lower_reshape(arguments: Arguments, _: Attributes) -> Program:
    x, target = _reshape_target(arguments)
    old, new = known(x, "x"), known(target, "the target")
    b = ProgramBuilder("reshape")
    source = b.input("x", old, dtype_of(x, "x"))
    return b.finish(b.compute("y", new, lambda *i: source[unflatten(flat_index(i, new), old)]))


def _deduce_flatten(arguments: Arguments, _: Attributes) -> Annotation:
    (x,) = tensors(arguments, "x")
    return Tensor(dtype=x.dtype, ndim=1) if x.shape is None else Tensor((product(x.shape),), x.dtype)


def _lower_flatten(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    return _lower_reshape((x, Shape((product(known(x, "x")),))), {})


def _deduce_transpose(arguments: Arguments, attributes: Attributes) -> Annotation:
    (x,) = tensors(arguments, "x")
    order = attributes["axes"]
    rank(x, len(order), "x")
    return Tensor(dtype=x.dtype, ndim=x.ndim) if x.shape is None else Tensor([x.shape[a] for a in order], x.dtype)


def _lower_transpose(arguments: Arguments, attributes: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    order: tuple[int, ...] = attributes["axes"]
    old = known(x, "x")
    b = ProgramBuilder("transpose")
    source = b.input("x", old, dtype_of(x, "x"))
    new = [old[a] for a in order]
    return b.finish(b.compute("y", new, lambda *i: source[tuple(i[order.index(d)] for d in range(len(order)))]))


def _deduce_take(arguments: Arguments, _: Attributes) -> Annotation:
    table, ids = tensors(arguments, "table", "ids")
    rank(table, 2, "table")
    rank(ids, 1, "ids")
    if table.shape is None or ids.shape is None:
        return Tensor(dtype=table.dtype, ndim=2)
    return Tensor((ids.shape[0], table.shape[1]), table.dtype)


def _lower_take(arguments: Arguments, _: Attributes) -> Program:
    table, ids = tensors(arguments, "table", "ids")
    b = ProgramBuilder("take")
    source = b.input("table", known(table, "table"), dtype_of(table, "table"))
    rows = b.input("ids", known(ids, "ids"), "i32")
    shape = (known(ids, "ids")[0], known(table, "table")[1])
    return b.finish(b.compute("y", shape, lambda i, j: source[rows[i], j]))


def _deduce_last_row(arguments: Arguments, _: Attributes) -> Annotation:
    (x,) = tensors(arguments, "x")
    rank(x, 2, "x")
    return Tensor(dtype=x.dtype, ndim=2) if x.shape is None else Tensor((1, x.shape[1]), x.dtype)


def _lower_last_row(arguments: Arguments, _: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    rows, columns = known(x, "x")
    b = ProgramBuilder("last_row")
    source = b.input("x", (rows, columns), dtype_of(x, "x"))
    return b.finish(b.compute("y", (1, columns), lambda i, j: source[rows - 1 + i, j]))


def _deduce_concat(arguments: Arguments, attributes: Attributes) -> Annotation:
    x, y = tensors(arguments, "x", "y")
    axis: int = attributes["axis"]
    if x.shape is None or y.shape is None:
        return Tensor(dtype=x.dtype, ndim=x.ndim)
    dims = list(x.shape)
    dims[axis] = dims[axis] + y.shape[axis]
    return Tensor(dims, x.dtype)


def _lower_concat(arguments: Arguments, attributes: Attributes) -> Program:
    x, y = tensors(arguments, "x", "y")
    axis: int = attributes["axis"]
    out = _deduce_concat(arguments, attributes)
    first = known(x, "x")[axis]
    b = ProgramBuilder("concat")
    left = b.input("x", known(x, "x"), dtype_of(x, "x"))
    right = b.input("y", known(y, "y"), dtype_of(y, "y"))

    def element(*i: Expr) -> Scalar:
        shifted = (*i[:axis], i[axis] - first, *i[axis + 1 :])
        return Select(less(i[axis], first), left[i], right[shifted])

    return b.finish(b.compute("z", known(out, "the result"), element))


reshape = Operator("reshape", _deduce_reshape, _lower_reshape)
flatten = Operator("flatten", _deduce_flatten, _lower_flatten)
transpose = Operator("transpose", _deduce_transpose, _lower_transpose)
take = Operator("take", _deduce_take, _lower_take)
last_row = Operator("last_row", _deduce_last_row, _lower_last_row)
concat = Operator("concat", _deduce_concat, _lower_concat)
