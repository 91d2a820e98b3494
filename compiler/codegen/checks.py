"""Code that checks dimensions where values enter: a function's arguments, and match_cast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import WebrelaxError
from ..ir import Annotation, Callable, Object, Shape, Tensor, Tuple
from ..symbolic import Expr, Var
from .numbers import Numbers
from .resources import Resources
from .values import DeviceValue, DimensionsValue, TensorValue


@dataclass(frozen=True)
class Dimension:
    """A dimension as declared, where it is for a message, and what it is: an expression, or an argument's number."""

    declared: Expr
    where: str
    actual: Expr | int


def check_dimensions(dimensions: Sequence[Dimension], numbers: Numbers, resources: Resources) -> None:
    """Binds variables that stand alone and are not bound yet, checks their bounds, then that all others are equal."""
    bound: list[Dimension] = []
    others: list[tuple[Dimension, int | None]] = []
    for dimension in dimensions:
        if isinstance(dimension.declared, Var) and dimension.declared not in numbers.ready:
            slot = numbers.slot_of.get(dimension.declared)
            slot = numbers.fresh() if slot is None else slot
            numbers.slot_of[dimension.declared] = slot
            _fill(slot, dimension.actual, numbers)
            numbers.ready.add(dimension.declared)
            bound.append(dimension)
        elif isinstance(dimension.actual, int):
            slot = numbers.fresh()
            _fill(slot, dimension.actual, numbers)
            others.append((dimension, slot))
        elif dimension.actual != dimension.declared:
            others.append((dimension, None))
    for dimension in bound:
        _check_bounds(dimension, numbers, resources)
    for dimension, slot in others:
        actual = numbers.evaluate(dimension.actual) if slot is None else slot
        text = resources.string(f"{numbers.function}: {dimension.where} ({dimension.declared})")
        numbers.emit("check_equal", actual, numbers.evaluate(dimension.declared), text)


def _fill(slot: int, actual: Expr | int, numbers: Numbers) -> None:
    if isinstance(actual, int):
        numbers.emit("argument", slot, actual)
    else:
        numbers.move(slot, actual)


def _check_bounds(dimension: Dimension, numbers: Numbers, resources: Resources) -> None:
    variable, where = dimension.declared, f"{numbers.function}: {dimension.where} ({dimension.declared})"
    assert isinstance(variable, Var)
    slot = numbers.slot_of[variable]
    if variable.lower is not None:
        numbers.emit("check_greater_equal", slot, numbers.evaluate(variable.lower), resources.string(where))
    if variable.upper is not None:
        numbers.emit("check_less_equal", slot, numbers.evaluate(variable.upper), resources.string(where))


def cast_dimensions(value: DeviceValue, annotation: Annotation, where: str, function: str) -> list[Dimension]:
    """What a match_cast of a function has to check of a value. Raises WebrelaxError where it fails for certain."""
    text = f"{function}: {where}"
    match value, annotation:
        case _, Object():
            return []
        case TensorValue(shape=actual, dtype=dtype), Tensor(shape=declared, dtype=wanted, ndim=ndim):
            if wanted not in (None, dtype):
                raise WebrelaxError(f"{text} must be {wanted}, it is {dtype}")
        case DimensionsValue(actual), Shape(declared, ndim):
            pass
        case tuple(), Tuple(fields) if len(value) == len(fields):
            parts = zip(value, fields, strict=True)
            return [d for at, (v, f) in enumerate(parts) for d in cast_dimensions(v, f, f"{where}[{at}]", function)]
        case _, Callable():
            raise WebrelaxError(f"{text} is a function, which a compiled program can only call")
        case _:
            raise WebrelaxError(f"{text} cannot be {annotation}")
    if ndim not in (None, len(actual)):
        raise WebrelaxError(f"{text} must have {ndim} dimensions, it has {len(actual)}")
    if declared is None:
        return []
    pairs = zip(declared, actual, strict=True)
    return [Dimension(dim, f"dimension {at} of {where}", is_) for at, (dim, is_) in enumerate(pairs)]
