"""Walking over an expression, and building it again from changed parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_

from .division import floor_div, floor_mod
from .expr import Add, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, const
from .extrema import maximum, minimum
from .polynomial import Polynomial, accumulate, build, multiply


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands; payloads of `Opaque` are not entered."""
    match expr:
        case Add(parts) | Mul(_, parts) | Min(parts) | Max(parts):
            return parts
        case FloorDiv(a, b) | FloorMod(a, b):
            return a, b
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, the expression itself first; payloads of `Opaque` are not entered."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every direct operand changed, simplified again."""
    before = children(expr)
    after = [change(child) for child in before]
    if all(map(is_, before, after)):
        return expr
    match expr:
        case Add():
            total: Polynomial = {}
            for term in after:
                accumulate(total, term)
            return build(total)
        case Mul(coefficient):
            result: Expr = const(coefficient)
            for factor in after:
                result = multiply(result, factor)
            return result
        case FloorDiv():
            return floor_div(*after)
        case FloorMod():
            return floor_mod(*after)
        case Min():
            return minimum(*after)
        case Max():
            return maximum(*after)
    raise TypeError(f"not a symbolic integer with operands: {type(expr).__name__}")


def map_opaque(expr: Expr, change: Callable[[Opaque], Expr]) -> Expr:
    """The expression with every `Opaque` integer replaced, and simplified again."""
    if isinstance(expr, Opaque):
        return change(expr)
    return rebuild(expr, lambda child: map_opaque(child, change))
