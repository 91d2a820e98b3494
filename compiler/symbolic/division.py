"""Floor division and remainder, simplified where divisibility or bounds allow.

The rules below, for b > 0; a divisor that may be 0 is left alone.

    (q*b + r) // b       = q + r//b                   (q*b + r) % b       = r % b
    r // b               = 0          if 0 <= r < b   r % b               = r                  if 0 <= r < b
    (g*x) // (g*b)       = x // b     if g > 0        (g*x) % (g*b)       = g * (x % b)        if g > 0
    (g*x + r) // (g*b)   = x // b     if 0 <= r < g   (g*x + r) % (g*b)   = g * (x % b) + r    if 0 <= r < g
    (x//a + y) // b      = (x + a*y) // (a*b)         (x//a + y) % b      = (x + a*y) % (a*b) // a       if a > 0
                                                      (x % (k*b) + y) % b = (x + y) % b        if k > 0
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from .bounds import own_bounds, polynomial_bounds
from .expr import ONE, ZERO, Const, Expr, FloorDiv, FloorMod, as_expr, const
from .nonnegative import nonnegative
from .polynomial import (
    CACHE_SIZE,
    Monomial,
    Polynomial,
    accumulate,
    add,
    build,
    content,
    divide,
    multiply,
    negate,
    polynomial,
    quotient,
    subtract,
    truncated,
)


@lru_cache(CACHE_SIZE)
def floor_div(a: Expr, b: Expr) -> Expr:
    """`a // b`, rounded down."""
    low, high = own_bounds(b)
    if high is not None and high < 0:
        return floor_div(negate(a), negate(b))
    if low is None or low <= 0:
        return FloorDiv(a, b)
    return _div_constant(a, low) if low == high else _div_symbolic(a, b)


@lru_cache(CACHE_SIZE)
def floor_mod(a: Expr, b: Expr) -> Expr:
    """`a % b`, with the sign of b."""
    low, high = own_bounds(b)
    if high is not None and high < 0:
        return negate(floor_mod(negate(a), negate(b)))
    if low is None or low <= 0:
        return FloorMod(a, b)
    return _mod_constant(a, low) if low == high else _mod_symbolic(a, b)


def ceildiv(a: int | Expr, b: int | Expr) -> Expr:
    """`a / b` rounded up, for b > 0."""
    a, b = as_expr(a), as_expr(b)
    return floor_div(add(a, subtract(b, ONE)), b)


def align_up(a: int | Expr, b: int | Expr) -> Expr:
    """The least multiple of b that is not less than a, for b > 0."""
    return multiply(ceildiv(a, b), as_expr(b))


def _div_constant(a: Expr, c: int) -> Expr:
    if isinstance(a, Const):
        return const(a.value // c)
    if c == 1:
        return a
    whole: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in polynomial(a).items():
        # Towards zero keeps signs: -n stays -n instead of n*(c - 1), whose bounds are wider.
        count = truncated(coefficient, c) if monomial else coefficient // c
        if count:
            whole[monomial] = count
        if coefficient != count * c:
            rest[monomial] = coefficient - count * c
    return _plus(whole, _div_reduced(rest, c))


def _plus(terms: Polynomial, expr: Expr) -> Expr:
    if not terms:
        return expr
    accumulate(terms, expr)
    return build(terms)


def _div_reduced(rest: Polynomial, c: int) -> Expr:
    low, high = polynomial_bounds(rest.items())
    if low is not None and high is not None and low // c == high // c:
        return const(low // c)
    split = _split(rest, c)
    if split is not None:
        factor, outer, _ = split
        return _div_constant(outer, c // factor)
    expr = build(rest)
    inner = _inner_division(rest)
    if inner is not None:
        return floor_div(_unnested(expr, inner), multiply(inner.b, const(c)))
    return FloorDiv(expr, const(c))


def _mod_constant(a: Expr, c: int) -> Expr:
    if isinstance(a, Const):
        return const(a.value % c)
    if c == 1:
        return ZERO
    rest: Polynomial = {}
    for monomial, coefficient in polynomial(a).items():
        remainder = coefficient - truncated(coefficient, c) * c if monomial else coefficient % c
        if remainder:
            rest[monomial] = remainder
    low, high = polynomial_bounds(rest.items())
    if low is not None and high is not None and low // c == high // c:
        rest[()] = rest.get((), 0) - low // c * c
        return build(rest)
    split = _split(rest, c)
    if split is not None:
        factor, outer, inside = split
        return add(multiply(_mod_constant(outer, c // factor), const(factor)), inside)
    expr = build(rest)
    plain = _without_inner_remainders(expr, const(c))
    if plain is not None:
        return _mod_constant(plain, c)
    inner = _inner_division(rest)
    if inner is not None:
        return floor_div(floor_mod(_unnested(expr, inner), multiply(inner.b, const(c))), inner.b)
    return FloorMod(expr, const(c))


def _split(terms: Polynomial, c: int) -> tuple[int, Expr, Expr] | None:
    """A factor g of c, x and r with `terms == g*x + r` and `0 <= r < g`; the greatest g > 1 there is."""
    factors: set[int] = set()
    for monomial, coefficient in terms.items():
        if monomial:
            common = gcd(c, coefficient)
            factors |= {common, *[gcd(common, factor) for factor in factors]}
    for factor in sorted(factors, reverse=True):
        if factor == 1:
            break
        inside = {key: value for key, value in terms.items() if value % factor}
        if () in inside:
            inside[()] %= factor
        low, high = polynomial_bounds(inside.items())
        if low is None or high is None or low // factor != high // factor:
            continue
        carry = low // factor
        inside[()] = inside.get((), 0) - carry * factor
        outer = {key: value // factor for key, value in terms.items() if not key or value % factor == 0}
        outer[()] = outer.get((), 0) + carry
        return factor, build(outer), build(inside)
    return None


def _inner_division(terms: Polynomial) -> FloorDiv | None:
    """The only `x//a` with a > 0 among the terms, if its coefficient is 1."""
    found = None
    for monomial, coefficient in terms.items():
        if len(monomial) == 1 and isinstance(monomial[0], FloorDiv):
            if found is not None or coefficient != 1 or not _is_positive(monomial[0].b):
                return None
            found = monomial[0]
    return found


def _unnested(expr: Expr, inner: FloorDiv) -> Expr:
    """`x + a*y` from `x//a + y`."""
    return add(inner.a, multiply(inner.b, subtract(expr, inner)))


def _without_inner_remainders(expr: Expr, b: Expr) -> Expr | None:
    """`expr`, equal modulo b, with `x % m` replaced by x where m > 0 is a multiple of b; None if there is none."""
    for monomial, coefficient in polynomial(expr).items():
        for atom in monomial:
            if isinstance(atom, FloorMod) and _is_positive(atom.b):
                scaled = multiply(atom.b, const(coefficient))
                if divide(scaled, b)[1] == ZERO:
                    others = quotient(monomial, (atom,))
                    assert others is not None
                    return add(expr, multiply(build({others: coefficient}), subtract(atom.a, atom)))
    return None


def _div_symbolic(a: Expr, b: Expr) -> Expr:
    if _is_below(a, b):
        return ZERO
    taken = _taken_out(a, b)
    if taken is not None:
        return add(taken[0], floor_div(taken[1], b))
    common = _common_factor(a, b)
    if common != ONE:
        return floor_div(divide(a, common)[0], divide(b, common)[0])
    terms = polynomial(a)
    split = _split(terms, content(b))
    if split is not None:
        factor, outer, _ = split
        return floor_div(outer, divide(b, const(factor))[0])
    inner = _inner_division(terms)
    if inner is not None:
        return floor_div(_unnested(a, inner), multiply(inner.b, b))
    return FloorDiv(a, b)


def _mod_symbolic(a: Expr, b: Expr) -> Expr:
    if _is_below(a, b):
        return a
    taken = _taken_out(a, b)
    if taken is not None:
        return floor_mod(taken[1], b)
    common = _common_factor(a, b)
    if common != ONE:
        return multiply(common, floor_mod(divide(a, common)[0], divide(b, common)[0]))
    terms = polynomial(a)
    split = _split(terms, content(b))
    if split is not None:
        factor, outer, inside = split
        return add(multiply(floor_mod(outer, divide(b, const(factor))[0]), const(factor)), inside)
    plain = _without_inner_remainders(a, b)
    if plain is not None:
        return floor_mod(plain, b)
    inner = _inner_division(terms)
    if inner is not None:
        return floor_div(floor_mod(_unnested(a, inner), multiply(inner.b, b)), inner.b)
    return FloorMod(a, b)


def _is_below(a: Expr, b: Expr) -> bool:
    """True only if `0 <= a < b`."""
    low = own_bounds(a)[0]
    return low is not None and low >= 0 and nonnegative(subtract(subtract(b, a), ONE))


def _is_positive(expr: Expr) -> bool:
    low = own_bounds(expr)[0]
    return low is not None and low > 0


def _taken_out(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """q and r with `a == q*b + r`, if r is simpler than a."""
    taken = divide(a, b)
    return taken if taken[0] != ZERO and _size(taken[1]) < _size(a) else None


def _size(expr: Expr) -> int:
    return sum([abs(coefficient) if monomial else 1 for monomial, coefficient in polynomial(expr).items()])


def _common_factor(a: Expr, b: Expr) -> Expr:
    """The greatest product of an integer and of atoms proved positive that divides both."""
    number = gcd(content(a), content(b))
    left, right = list(polynomial(a)), list(polynomial(b))
    shared: Monomial = ()
    for atom in dict.fromkeys(right[0]):
        while _is_positive(atom) and all(quotient(key, (*shared, atom)) is not None for key in (*left, *right)):
            shared = (*shared, atom)
    return build({shared: number})
