"""Variables of an expression: which, and put what in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from .expr import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, Var, as_expr
from .rewrite import children, rebuild

Key = TypeVar("Key", bound=Expr)


def variables(expr: int | Expr) -> tuple[Var, ...]:
    """The variables of an expression, each once, sorted by name."""
    if not isinstance(expr, Expr):
        return ()
    try:
        return expr._variables
    except AttributeError:
        expr._variables = _collect(expr)
        return expr._variables


def _collect(expr: Expr) -> tuple[Var, ...]:
    if isinstance(expr, Var):
        return (expr,)
    if isinstance(expr, Opaque):
        found = list(expr.payload.variables())
    else:
        found = [var for child in children(expr) for var in variables(child)]
    return tuple(sorted(set(found), key=lambda var: (var.name, var.key)))


def substitute(expr: int | Expr, mapping: Mapping[Key, Expr | int]) -> Expr:
    """The expression with variables replaced, all at the same time, and simplified again.

    What replaces a variable must lie within the variable's bounds, on which the expression may rest already.
    """
    known: dict[Expr, Expr] = {var: as_expr(value) for var, value in mapping.items()}

    def replaced(part: Expr) -> Expr:
        result = known.get(part)
        if result is None:
            if not any(var in mapping for var in variables(part)):
                return part
            if isinstance(part, Opaque):
                result = Opaque(part.payload.substitute(mapping), part.lower, part.upper)
            else:
                result = rebuild(part, replaced)
            known[part] = result
        return result

    return replaced(as_expr(expr))


def evaluate(expr: int | Expr, values: Mapping[Var, int]) -> int:
    """The value for these values of the variables.

    Raises KeyError for a variable without value, ZeroDivisionError, and TypeError for an `Opaque` integer.
    """
    match expr:
        case int():
            return expr
        case Const(value):
            return value
        case Var():
            return values[expr]
        case Add(terms):
            return sum([evaluate(term, values) for term in terms])
        case Mul(coefficient, factors):
            for factor in factors:
                coefficient *= evaluate(factor, values)
            return coefficient
        case FloorDiv(a, b):
            return evaluate(a, values) // evaluate(b, values)
        case FloorMod(a, b):
            return evaluate(a, values) % evaluate(b, values)
        case Min(args):
            return min([evaluate(arg, values) for arg in args])
        case Max(args):
            return max([evaluate(arg, values) for arg in args])
    raise TypeError(f"'{expr}' is known at run time only and has no value here")
