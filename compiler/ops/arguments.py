"""What the shape rules share: reading annotations, and sentences for arguments that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import Annotation, Shape, Tensor
from ..symbolic import Expr, as_int

Arguments = tuple[Annotation, ...]
Attributes = Mapping[str, Any]


def tensor(annotation: Annotation, what: str) -> Tensor:
    """The annotation as a tensor's. Raises ValueError."""
    if not isinstance(annotation, Tensor):
        raise ValueError(f"{what} must be a tensor, not {annotation}")
    return annotation


def tensors(arguments: Arguments, *names: str) -> tuple[Tensor, ...]:
    """All arguments as tensors. Raises ValueError where their number or kind is another."""
    if len(arguments) != len(names):
        raise ValueError(f"takes {len(names)} arguments ({', '.join(names)}), not {len(arguments)}")
    return tuple(tensor(a, n) for a, n in zip(arguments, names, strict=True))


def known(annotation: Annotation, what: str) -> tuple[Expr, ...]:
    """The dimensions, which a lowering needs. Raises ValueError where they are unknown."""
    dims = (
        annotation.shape
        if isinstance(annotation, Tensor)
        else annotation.dims
        if isinstance(annotation, Shape)
        else None
    )
    if dims is None:
        raise ValueError(f"the shape of {what} is not known: match_cast it first")
    return dims


def dtype_of(annotation: Tensor, what: str) -> str:
    if annotation.dtype is None:
        raise ValueError(f"the element type of {what} is not known")
    return annotation.dtype


def same(a: Expr, b: Expr, what: str) -> None:
    """Refuses dimensions that differ for certain. Raises ValueError."""
    difference = as_int(a - b)
    if difference not in (None, 0):
        raise ValueError(f"{what}: {a} and {b} differ")


def rank(annotation: Tensor, ndim: int, what: str) -> None:
    if annotation.ndim is not None and annotation.ndim != ndim:
        raise ValueError(f"{what} must have {ndim} dimensions, not {annotation.ndim}")
