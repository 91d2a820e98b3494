"""Proofs: True is certain, within the bounds of the variables; False and None mean unknown."""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from .division import floor_div, floor_mod
from .expr import MINUS_ONE, ONE, ZERO, Add, Const, Expr, FloorMod, Max, Min, Mul, as_expr, const
from .nonnegative import nonnegative
from .polynomial import CACHE_SIZE, accumulate, add, build, content, divide, multiply, polynomial, quotient, subtract


def prove_equal(a: int | Expr, b: int | Expr) -> bool:
    """True only if `a == b` always."""
    a, b = as_expr(a), as_expr(b)
    if a == b:
        return True
    difference = subtract(a, b)
    if isinstance(difference, Const):
        return difference.value == 0
    return _is_zero(difference)


def prove_less_equal(a: int | Expr, b: int | Expr) -> bool:
    """True only if `a <= b` always."""
    return nonnegative(subtract(as_expr(b), as_expr(a)))


def prove_less(a: int | Expr, b: int | Expr) -> bool:
    """True only if `a < b` always."""
    return nonnegative(add(subtract(as_expr(b), as_expr(a)), MINUS_ONE))


@lru_cache(CACHE_SIZE)
def _is_zero(expr: Expr) -> bool:
    if _without_remainders(expr) == ZERO:
        return True
    return nonnegative(expr) and nonnegative(multiply(expr, MINUS_ONE))


def _without_remainders(expr: Expr) -> Expr:
    """`x % b` written as `x - b*(x//b)` in all terms, which makes equal sums of both equal."""
    for monomial, coefficient in polynomial(expr).items():
        for atom in monomial:
            if isinstance(atom, FloorMod):
                others = quotient(monomial, (atom,))
                assert others is not None
                replacement = subtract(atom.a, multiply(atom.b, floor_div(atom.a, atom.b)))
                terms = polynomial(expr)
                del terms[monomial]
                accumulate(terms, multiply(build({others: coefficient}), replacement))
                return _without_remainders(build(terms))
    return expr


def is_multiple_of(expr: int | Expr, k: int) -> bool:
    """True only if k divides the expression always; k is not 0."""
    expr = as_expr(expr)
    k = abs(k)
    if k == 0:
        raise ValueError("is_multiple_of needs a divisor other than 0")
    return _known_factor(expr) % k == 0 or floor_mod(expr, const(k)) == ZERO


def _known_factor(expr: Expr) -> int:
    """An integer that divides every value of the expression; 0 divides 0 alone."""
    match expr:
        case Const(value):
            return abs(value)
        case Add(terms):
            return gcd(*[_known_factor(term) for term in terms])
        case Mul(coefficient, factors):
            result = abs(coefficient)
            for factor in factors:
                result *= _known_factor(factor)
            return result
        case Min(args) | Max(args):
            return gcd(*[_known_factor(arg) for arg in args])
        case FloorMod(a, b):
            return gcd(_known_factor(a), _known_factor(b))
    return 1


def divide_exact(expr: int | Expr, k: int | Expr) -> Expr | None:
    """q with `q * k == expr` always, None if none is found; k, which is not 0, must be so provably."""
    expr, k = as_expr(expr), as_expr(k)
    if isinstance(k, Const):
        if not k.value:
            return None
        if content(expr) % k.value == 0 or is_multiple_of(expr, k.value):
            return floor_div(expr, k)
        return None
    if not (nonnegative(subtract(k, ONE)) or nonnegative(subtract(MINUS_ONE, k))):
        return None
    result, rest = divide(expr, k)
    return result if rest == ZERO else None
