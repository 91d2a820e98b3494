"""What the names of a graph function are on the device: tensors in buffers, shapes, and tuples of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import WebrelaxError
from ..ir import Annotation, Callable, Shape, Tensor, Tuple
from ..symbolic import Expr, align_up
from ..tir import Buffer
from .resources import Region


@dataclass(frozen=True)
class TensorValue:
    """A tensor's memory and what its dimensions are."""

    region: Region
    shape: tuple[Expr, ...]
    dtype: str

    @property
    def bytes(self) -> Expr:
        """Its size, a multiple of 4."""
        return align_up(Buffer("", self.shape, self.dtype).size, 4)


@dataclass(frozen=True)
class DimensionsValue:
    """A shape: it has no memory."""

    dims: tuple[Expr, ...]


DeviceValue: TypeAlias = "TensorValue | DimensionsValue | tuple[DeviceValue, ...]"


def leaves(
    name: str, value: DeviceValue, annotation: Annotation
) -> Iterator[tuple[str, TensorValue | DimensionsValue, Annotation]]:
    """The tensors and shapes of a value with what is known of them; fields of a tuple are called `name.0`, `name.1`."""
    if not isinstance(value, tuple):
        yield name, value, annotation
        return
    fields = annotation.fields if isinstance(annotation, Tuple) else (annotation,) * len(value)
    for at, (part, known) in enumerate(zip(value, fields, strict=True)):
        yield from leaves(f"{name}.{at}", part, known)


def has_shape(annotation: Annotation) -> bool:
    """Whether all dimensions of a tensor are known."""
    return isinstance(annotation, Tensor) and annotation.shape is not None


def check_rank(annotation: Annotation, where: str) -> None:
    """Raises WebrelaxError for a tensor of unknown rank."""
    if not isinstance(annotation, Tensor) or annotation.ndim is None:
        raise WebrelaxError(f"{where} is {annotation}: a compiled program needs its rank; declare it")


def known_tensor(annotation: Annotation, where: str) -> tuple[tuple[Expr, ...], str]:
    """Shape and element type of a tensor that needs memory. Raises WebrelaxError where they are not known."""
    if isinstance(annotation, Tensor) and annotation.shape is not None and annotation.dtype is not None:
        return annotation.shape, annotation.dtype
    if isinstance(annotation, Callable):
        raise WebrelaxError(f"{where} is a function, which a compiled program can only call: pass it inside the module")
    raise WebrelaxError(f"{where} is {annotation}: a compiled program needs its shape and element type; declare them")


def known_shape(annotation: Shape, where: str) -> tuple[Expr, ...]:
    """The dimensions of a shape parameter. Raises WebrelaxError where they are not known."""
    if annotation.dims is None:
        raise WebrelaxError(f"{where} is {annotation}: a compiled program needs its dimensions; declare them")
    return annotation.dims
