"""What the shape rules share: reading annotations, and sentences for arguments that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import Annotation, Shape, Tensor
from ..symbolic import Expr, prove_equal

Arguments = tuple[Annotation, ...]
Attributes = Mapping[str, Any]


def tensor(annotation: Annotation, what: str, ndim: int | None = None, dtype: str | None = None) -> Tensor:
    """The annotation as a tensor's. Raises ValueError where it certainly has another rank or element type."""
    if not isinstance(annotation, Tensor):
        raise ValueError(f"{what} must be a tensor, not {annotation}")
    if ndim is not None and annotation.ndim not in (None, ndim):
        raise ValueError(f"{what} must have {ndim} dimensions, not {annotation.ndim}")
    if dtype is not None and annotation.dtype not in (None, dtype):
        raise ValueError(f"{what} must be {dtype}, not {annotation.dtype}")
    return annotation


def tensors(arguments: Arguments, *names: str) -> tuple[Tensor, ...]:
    """All arguments as tensors. Raises ValueError where their number or kind is another."""
    count(arguments, *names)
    return tuple(map(tensor, arguments, names))


def rows(annotation: Annotation, what: str) -> Tensor:
    """An f32 tensor with at least one dimension. Raises ValueError for anything else."""
    x = tensor(annotation, what, dtype="f32")
    if x.ndim == 0:
        raise ValueError(f"{what} must have at least one dimension")
    return x


def count(arguments: Arguments, *names: str) -> None:
    """Refuses another number of arguments. Raises ValueError."""
    if len(arguments) != len(names):
        raise ValueError(f"takes {len(names)} arguments ({', '.join(names)}), not {len(arguments)}")


def known(annotation: Annotation, what: str) -> tuple[Expr, ...]:
    """The dimensions, which a lowering needs. Raises ValueError where they are unknown."""
    match annotation:
        case Tensor(shape=tuple() as dims) | Shape(dims=tuple() as dims):
            return dims
    raise ValueError(f"the shape of {what} is not known: match_cast it first")


def dtype_of(annotation: Tensor, what: str) -> str:
    """The element type, which a lowering needs. Raises ValueError where it is unknown."""
    if annotation.dtype is None:
        raise ValueError(f"the element type of {what} is not known: match_cast it first")
    return annotation.dtype


def dim(annotation: Tensor, at: int) -> Expr | None:
    """One dimension, if it is known."""
    return annotation.shape[at] if annotation.shape is not None else None


def same(a: Expr | None, b: Expr | None, what: str) -> None:
    """Refuses known dimensions that are not provably equal. Raises ValueError."""
    if a is not None and b is not None and not prove_equal(a, b):
        raise ValueError(f"{what}: {a} and {b} are not provably equal")


def same_dtype(x: Tensor, y: Tensor) -> str | None:
    """The common element type. Raises ValueError where they differ."""
    if x.dtype and y.dtype and x.dtype != y.dtype:
        raise ValueError(f"element types {x.dtype} and {y.dtype} differ")
    return x.dtype or y.dtype
