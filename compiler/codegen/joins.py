"""Where the two arms of an `if` meet: one value, wherever it came from."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import WebrelaxError
from ..symbolic import Expr, Var, variables
from ..vm import Instruction
from .numbers import Numbers
from .resources import Resources
from .values import DeviceValue, DimensionsValue, TensorValue


@dataclass
class Arm:
    """What an arm gives, its code, and what is computed at its end."""

    value: DeviceValue
    code: list[Instruction]
    ready: set[Expr]


@dataclass(frozen=True)
class Joined:
    """The value behind an `if`, and the variables that stand for dimensions in which the arms differ."""

    value: DeviceValue
    unknown: frozenset[Var]


def join(name: str, then: Arm, orelse: Arm, ready: set[Expr], numbers: Numbers, resources: Resources) -> Joined:
    """Ends both arms with the same value: a copy into memory of its own where theirs are different tensors.

    `ready` has what is computed before the `if`.
    Raises WebrelaxError where only one arm gives a state on, or the arms differ in more than dimensions.
    """
    unknown: set[Var] = set()
    arms = (then, orelse)

    def dims(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if len(a) != len(b):
            raise WebrelaxError(
                f"{name}: one arm gives {len(a)} dimensions and the other {len(b)}, which must be as many"
            )
        pairs = zip(a, b, strict=True)
        return tuple(x if x == y and ready.issuperset(variables(x)) else differing(x, y) for x, y in pairs)

    def differing(x: Expr, y: Expr) -> Expr:
        variable, slot = numbers.unknown()
        unknown.add(variable)
        for arm, expr in zip(arms, (x, y), strict=True):
            numbers.code, numbers.ready = arm.code, arm.ready
            numbers.move(slot, expr)
        return variable

    def merged(a: DeviceValue, b: DeviceValue, where: str) -> DeviceValue:
        match a, b:
            case tuple(), tuple() if len(a) == len(b):
                parts = enumerate(zip(a, b, strict=True))
                return tuple(merged(x, y, f"{where}.{at}") for at, (x, y) in parts)
            case DimensionsValue(), DimensionsValue():
                return DimensionsValue(dims(a.dims, b.dims))
            case TensorValue(), TensorValue() if a.dtype == b.dtype:
                return tensor(a, b, where)
        raise WebrelaxError(f"{where}: the arms give values of different kinds")

    def tensor(a: TensorValue, b: TensorValue, where: str) -> TensorValue:
        shape = dims(a.shape, b.shape)
        if a.region == b.region:
            return TensorValue(a.region, shape, a.dtype)
        if "state" in (resources.kind_of(a.region), resources.kind_of(b.region)):
            raise WebrelaxError(f"{where}: both arms must give the same state on, or neither")
        size = max(a.region[2], b.region[2])
        target = resources.buffer(where, "storage", size)
        for arm, value in zip(arms, (a, b), strict=True):
            numbers.code, numbers.ready = arm.code, arm.ready
            start, zero, count = (numbers.evaluate(e) for e in (value.region[1], 0, value.bytes))
            numbers.emit("copy", value.region[0], start, target, zero, count)
        return TensorValue((target, 0, size), shape, a.dtype)

    return Joined(merged(then.value, orelse.value, name), frozenset(unknown))
