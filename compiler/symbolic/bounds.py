"""Interval arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from .expr import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, Range, Var, as_expr
from .polynomial import Monomial

UNKNOWN: Range = (None, None)


class _Ranges:
    """The bounds of expressions under ranges that narrow those of the variables."""

    def __init__(self, ranges: Mapping[Var, Range]) -> None:
        self.ranges = ranges
        self.known: dict[Expr, Range] = {}

    def of(self, expr: Expr) -> Range:
        if expr not in self.known:
            self.known[expr] = _compute(expr, self)
        return self.known[expr]

    def of_var(self, var: Var) -> Range:
        own = var.lower, var.upper
        if var not in self.ranges:
            return own
        low, high = narrowed = intersection(own, self.ranges[var])
        if low is not None and high is not None and high < low - 1:
            raise ValueError(f"range {self.ranges[var]} of {var.name} lies outside its bounds {own}")
        return narrowed


def bounds(expr: int | Expr, ranges: Mapping[Var, Range] | None = None) -> Range:
    """Inclusive bounds of every value the expression can have; None is unknown.

    `ranges` narrows the variables' own bounds; a range that contradicts them raises ValueError.
    """
    expr = as_expr(expr)
    return _Ranges(ranges).of(expr) if ranges else own_bounds(expr)


def lower_bound(expr: int | Expr, ranges: Mapping[Var, Range] | None = None) -> int | None:
    """The lower one of `bounds`."""
    return bounds(expr, ranges)[0]


def upper_bound(expr: int | Expr, ranges: Mapping[Var, Range] | None = None) -> int | None:
    """The upper one of `bounds`."""
    return bounds(expr, ranges)[1]


def own_bounds(expr: Expr) -> Range:
    """Bounds by the variables' own bounds, computed once a node."""
    try:
        return expr._bounds
    except AttributeError:
        expr._bounds = _compute(expr, None)
        return expr._bounds


def _of(expr: Expr, ranges: _Ranges | None) -> Range:
    return own_bounds(expr) if ranges is None else ranges.of(expr)


def _compute(expr: Expr, ranges: _Ranges | None) -> Range:
    match expr:
        case Const(value):
            return value, value
        case Var():
            return (expr.lower, expr.upper) if ranges is None else ranges.of_var(expr)
        case Opaque(_, lower, upper):
            return lower, upper
        case Add(terms):
            low: int | None = 0
            high: int | None = 0
            for term in terms:
                a, b = _of(term, ranges)
                low = None if low is None or a is None else low + a
                high = None if high is None or b is None else high + b
            return low, high
        case Mul(coefficient, factors):
            return scaled(monomial_bounds(factors, ranges), coefficient)
        case FloorDiv(a_, b_):
            return _floor_div(_of(a_, ranges), _of(b_, ranges))
        case FloorMod(a_, b_):
            return _floor_mod(_of(a_, ranges), _of(b_, ranges))
        case Min(args):
            return _minimum([_of(arg, ranges) for arg in args])
        case Max(args):
            return _negated(_minimum([_negated(_of(arg, ranges)) for arg in args]))
    return UNKNOWN


def polynomial_bounds(terms: Iterable[tuple[Monomial, int]]) -> Range:
    """Bounds of a sum of terms, as `own_bounds` of the built expression."""
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in terms:
        a, b = scaled(monomial_bounds(monomial), coefficient)
        low = None if low is None or a is None else low + a
        high = None if high is None or b is None else high + b
    return low, high


def monomial_bounds(factors: Monomial, ranges: _Ranges | None = None) -> Range:
    """Bounds of a product of atoms."""
    if len(factors) == 1:
        return _of(factors[0], ranges)
    result: Range = (1, 1)
    for atom, group in groupby(factors):
        result = _product(result, _power(_of(atom, ranges), len(list(group))))
    return result


def intersection(a: Range, b: Range) -> Range:
    """What lies in both ranges."""
    lows = [low for low in (a[0], b[0]) if low is not None]
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def scaled(a: Range, k: int) -> Range:
    """`a * k`."""
    low, high = a if k >= 0 else (a[1], a[0])
    if k == 0:
        return 0, 0
    return None if low is None else low * k, None if high is None else high * k


def _negated(a: Range) -> Range:
    return scaled(a, -1)


def _minimum(ranges: list[Range]) -> Range:
    lows = [low for low, _ in ranges if low is not None]
    highs = [high for _, high in ranges if high is not None]
    return min(lows) if len(lows) == len(ranges) else None, min(highs, default=None)


def _power(a: Range, exponent: int) -> Range:
    low, high = a
    if exponent == 1:
        return a
    if exponent % 2 == 0 and (low is None or low < 0):
        if high is None or high > 0:
            far = None if low is None or high is None else max(-low, high)
            return 0, None if far is None else far**exponent
        low, high = -high, None if low is None else -low
    return None if low is None else low**exponent, None if high is None else high**exponent


def _product(a: Range, b: Range) -> Range:
    if a == (1, 1):
        return b
    if (0, 0) in (a, b):
        return 0, 0
    # The extremes lie at the corners; the sign of a corner at infinity is that of its other coordinate.
    lows: list[int] = []
    highs: list[int] = []
    low_open = high_open = False
    for x, x_sign in ((a[0], -1), (a[1], 1)):
        for y, y_sign in ((b[0], -1), (b[1], 1)):
            if x is not None and y is not None:
                lows.append(x * y)
                highs.append(x * y)
                continue
            sign = (x_sign if x is None else x) * (y_sign if y is None else y)
            low_open |= sign < 0
            high_open |= sign > 0
            if sign == 0:
                lows.append(0)
                highs.append(0)
    return None if low_open else min(lows, default=None), None if high_open else max(highs, default=None)


def _floor_div(a: Range, b: Range) -> Range:
    if b[1] is not None and b[1] < 0:
        a, b = _negated(a), _negated(b)
    if b[0] is None or b[0] <= 0:
        return UNKNOWN
    low, high = a
    least, most = b
    if low is not None:
        by = most if low >= 0 else least
        low = 0 if by is None else low // by
    if high is not None:
        by = least if high >= 0 else most
        high = -1 if by is None else high // by
    return low, high


def _floor_mod(a: Range, b: Range) -> Range:
    least, most = b
    if most is not None and most < 0:
        return _negated(_floor_mod(_negated(a), _negated(b)))
    if least is None or least <= 0:
        return UNKNOWN
    low, high = a
    if low is not None and high is not None:
        if least == most and low // least == high // least:
            return low % least, high % least
        if low >= 0 and high < least:
            return a
        if low >= 0:
            return 0, high if most is None else min(high, most - 1)
    return 0, None if most is None else most - 1
