"""Expressions as text: valid Python, the same in every run."""

from __future__ import annotations

from .expr import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, Var


def to_text(expr: Expr) -> str:
    """`n*4 + 1`, `(n + 3)//4`, `min(n, 4)`; what Python evaluates to the expression's value."""
    match expr:
        case Const(value):
            return str(value)
        case Var(name):
            return name
        case Add(terms):
            text = to_text(terms[0])
            for term in terms[1:]:
                part = to_text(term)
                text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
            return text
        case Mul(coefficient, factors):
            text = "*".join([_factor(factor) for factor in factors])
            sign = "-" if coefficient < 0 else ""
            return f"{sign}{text}" if abs(coefficient) == 1 else f"{sign}{text}*{abs(coefficient)}"
        case FloorDiv(a, b):
            return f"{_factor(a)}//{_factor(b)}"
        case FloorMod(a, b):
            return f"{_factor(a)} % {_factor(b)}"
        case Min(args):
            return f"min({', '.join([to_text(arg) for arg in args])})"
        case Max(args):
            return f"max({', '.join([to_text(arg) for arg in args])})"
        case Opaque(payload):
            return str(payload)
    raise TypeError(f"not a symbolic integer: {type(expr).__name__}")


def _factor(expr: Expr) -> str:
    simple = isinstance(expr, Var | Min | Max | Opaque) or (isinstance(expr, Const) and expr.value >= 0)
    return to_text(expr) if simple else f"({to_text(expr)})"
