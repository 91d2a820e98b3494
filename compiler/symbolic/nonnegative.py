"""One question, `expr >= 0`, which every proof and every folding by bounds comes down to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from .bounds import monomial_bounds, own_bounds
from .expr import ONE, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, Range, Var
from .polynomial import CACHE_SIZE, Monomial, Polynomial, add, build, multiply, polynomial, product, quotient, subtract

MAX_DEPTH = 4
MAX_STEPS = 100
MAX_TERMS = 24


def nonnegative(expr: Expr) -> bool:
    """True only if `expr >= 0` for all values within the variables' bounds; False says nothing."""
    low, high = own_bounds(expr)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    return _search(expr)


@lru_cache(CACHE_SIZE)
def _search(expr: Expr) -> bool:
    search = _Search()
    return any(search.proves(expr, depth) for depth in range(MAX_DEPTH + 1))


class _Search:
    """A search that ends after MAX_STEPS; its answer must depend on nothing but the expression."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.failed: dict[Expr, int] = {}

    def proves(self, expr: Expr, depth: int) -> bool:
        low, high = own_bounds(expr)
        if low is not None and low >= 0:
            return True
        if (high is not None and high < 0) or self.failed.get(expr, -1) >= depth or not self.steps:
            return False
        self.steps -= 1
        terms = polynomial(expr)
        if len(terms) <= MAX_TERMS:
            if expr not in self.failed and _by_corner(terms):
                return True
            if depth and any(all(self.proves(case, depth - 1) for case in cases) for cases in _reductions(terms)):
                return True
        self.failed[expr] = depth
        return False


def _by_corner(terms: Polynomial) -> bool:
    """Measure every atom of a nonlinear polynomial from one of its bounds: `n*m - n` is `n*(m - 1)` for m >= 1."""
    atoms = {atom for monomial in terms for atom in monomial}
    if all(len(monomial) < 2 for monomial in terms):
        return False
    spans: dict[Expr, int | None] = {}
    for atom in atoms:
        low, high = own_bounds(atom)
        if low is None and high is None:
            return False
        spans[atom] = None if low is None or high is None else high - low
        if low != 0:
            terms = _shifted(terms, atom, (low, high))
    total = 0
    for monomial, coefficient in terms.items():
        if coefficient < 0:
            for atom in monomial:
                span = spans[atom]
                if span is None:
                    return False
                coefficient *= span
        elif monomial:
            continue
        total += coefficient
    return total >= 0


def _shifted(terms: Polynomial, atom: Expr, span: Range) -> Polynomial:
    """The polynomial with `atom` standing for its distance from its lower bound, or else from its upper bound."""
    low, high = span
    offset, sign = (low, 1) if low is not None else (high, -1)
    assert offset is not None
    result: Polynomial = {}
    for monomial, coefficient in terms.items():
        others = tuple([factor for factor in monomial if factor != atom])
        powers: Polynomial = {others: coefficient}
        for _ in range(len(monomial) - len(others)):
            step: Polynomial = {}
            for key, value in powers.items():
                step[key] = step.get(key, 0) + value * offset
                raised = product(key, (atom,))
                step[raised] = step.get(raised, 0) + value * sign
            powers = step
        for key, value in powers.items():
            result[key] = result.get(key, 0) + value
    return result


def _reductions(terms: Polynomial) -> Iterator[list[Expr]]:
    """Lists of expressions without some atom; all of one list nonnegative means the polynomial is."""
    yield from _by_monotony(terms)
    for monomial, coefficient in terms.items():
        for atom in dict.fromkeys(monomial):
            if isinstance(atom, Var | Opaque | Const):
                continue
            others = quotient(monomial, (atom,))
            assert others is not None
            rest = build({key: value for key, value in terms.items() if key != monomial})
            if isinstance(atom, Min | Max):
                # The atom is one of its arguments, whichever.
                yield [add(rest, _times(coefficient, others, arg)) for arg in atom.args]
            low = monomial_bounds(others)[0]
            if low is None or low < 0:
                continue
            if isinstance(atom, Min | Max):
                if isinstance(atom, Max) == (coefficient > 0):
                    for arg in atom.args:
                        yield [add(rest, _times(coefficient, others, arg))]
            elif isinstance(atom, FloorMod | FloorDiv) and _is_positive(atom.b):
                yield from _by_division(atom, coefficient, others, rest)


def _by_monotony(terms: Polynomial) -> Iterator[list[Expr]]:
    """`x//b - y//b >= j` where `x - y >= j*b`."""
    divisions = [
        (key[0], value) for key, value in terms.items() if len(key) == 1 and isinstance(key[0], FloorDiv) and value
    ]
    for upper, plus in divisions:
        for lower, minus in divisions:
            if plus > 0 > minus and upper.b == lower.b and isinstance(upper.b, Const) and upper.b.value > 0:
                low = own_bounds(subtract(upper.a, lower.a))[0]
                if low is not None:
                    count = min(plus, -minus)
                    rest = {**terms, (upper,): plus - count, (lower,): minus + count}
                    rest[()] = rest.get((), 0) + count * (low // upper.b.value)
                    yield [build(rest)]


def _by_division(atom: FloorMod | FloorDiv, coefficient: int, others: Monomial, rest: Expr) -> Iterator[list[Expr]]:
    """What `coefficient * others * atom + rest` is at least, up to a positive factor; others >= 0, atom.b > 0."""
    a, b = atom.a, atom.b
    at_most_a = coefficient < 0 and _is_nonnegative(a)  # 0 <= a // b <= a and 0 <= a % b <= a
    if at_most_a:
        yield [add(rest, _times(coefficient, others, a))]
    if isinstance(atom, FloorMod):
        if coefficient < 0:
            yield [add(rest, _times(coefficient, others, subtract(b, ONE)))]
        return
    # a - b + 1 <= b * (a//b) <= a
    bound = a if coefficient < 0 else add(subtract(a, b), ONE)
    if isinstance(b, Const):
        scale = b.value // gcd(b.value, coefficient)
        yield [add(multiply(rest, Const(scale)), _times(coefficient * scale // b.value, others, bound))]
        return
    factor, divisor = (b.coefficient, b.factors) if isinstance(b, Mul) else (1, (b,))
    remaining = quotient(others, divisor)
    low = None if remaining is None else monomial_bounds(remaining)[0]
    if remaining is not None and low is not None and low >= 0 and factor > 0 and coefficient % factor == 0:
        yield [add(rest, _times(coefficient // factor, remaining, bound))]


def _times(coefficient: int, others: Monomial, expr: Expr) -> Expr:
    return multiply(build({others: coefficient}), expr)


def _is_positive(expr: Expr) -> bool:
    low = own_bounds(expr)[0]
    return low is not None and low > 0


def _is_nonnegative(expr: Expr) -> bool:
    low = own_bounds(expr)[0]
    return low is not None and low >= 0
