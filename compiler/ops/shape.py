"""Operators that move elements: reshape, flatten, transpose, take, concat, last_row."""

from __future__ import annotations

from ..ir import Annotation, Operator, Shape, Tensor
from ..symbolic import Expr, as_expr, as_int
from ..tir import Program, ProgramBuilder, Scalar, Select, less
from .arguments import Arguments, Attributes, count, dim, dtype_of, known, same, same_dtype, tensor, tensors


def product(dims: tuple[Expr, ...]) -> Expr:
    """The number of elements of a shape."""
    total = as_expr(1)
    for extent in dims:
        total = total * extent
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
    if x.shape is not None:
        same(product(x.shape), product(target.dims), f"numbers of elements of {x} and {target}")
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
    order: tuple[int, ...] = attributes["axes"]
    if sorted(order) != list(range(len(order))):
        raise ValueError(f"axes must be an order of all dimensions, not {order}")
    count(arguments, "x")
    x = tensor(arguments[0], "x", ndim=len(order))
    return Tensor(dtype=x.dtype, ndim=len(order)) if x.shape is None else Tensor([x.shape[a] for a in order], x.dtype)


def _lower_transpose(arguments: Arguments, attributes: Attributes) -> Program:
    (x,) = tensors(arguments, "x")
    order: tuple[int, ...] = attributes["axes"]
    old = known(x, "x")
    b = ProgramBuilder("transpose")
    source = b.input("x", old, dtype_of(x, "x"))
    new = [old[a] for a in order]
    return b.finish(b.compute("y", new, lambda *i: source[tuple(i[order.index(d)] for d in range(len(order)))]))


def _deduce_take(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "table", "ids")
    table, ids = tensor(arguments[0], "table", ndim=2), tensor(arguments[1], "ids", ndim=1, dtype="i32")
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
    count(arguments, "x")
    x = tensor(arguments[0], "x", ndim=2)
    if x.shape is not None and as_int(x.shape[0]) == 0:
        raise ValueError("x has no rows")
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
    dtype, ndim = same_dtype(x, y), y.ndim if x.ndim is None else x.ndim
    tensor(y, "y", ndim=ndim)
    if ndim is not None and not 0 <= axis < ndim:
        raise ValueError(f"there is no dimension {axis} of {ndim}")
    if x.shape is None or y.shape is None:
        return Tensor(dtype=dtype, ndim=ndim)
    for at in range(len(x.shape)):
        if at != axis:
            same(dim(x, at), dim(y, at), f"dimension {at}")
    return Tensor([a + b if at == axis else a for at, (a, b) in enumerate(zip(x.shape, y.shape, strict=True))], dtype)


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
