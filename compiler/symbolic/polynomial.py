"""Sums of products: the arithmetic that needs no bounds."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TypeAlias

from .expr import MINUS_ONE, ZERO, Add, Const, Expr, FloorDiv, FloorMod, Mul, const

Monomial: TypeAlias = tuple[Expr, ...]
"""Sorted atoms, repeated for powers; () is the constant."""

Polynomial: TypeAlias = dict[Monomial, int]
"""Monomials and their coefficients; those may be 0 while it is being built."""

CACHE_SIZE = 1 << 16


def polynomial(expr: Expr) -> Polynomial:
    """The terms of an expression."""
    if isinstance(expr, Add):
        return dict([_term(term) for term in expr.terms])
    monomial, coefficient = _term(expr)
    return {monomial: coefficient} if coefficient else {}


def _term(expr: Expr) -> tuple[Monomial, int]:
    if isinstance(expr, Mul):
        return expr.factors, expr.coefficient
    if isinstance(expr, Const):
        return (), expr.value
    return (expr,), 1


def accumulate(into: Polynomial, expr: Expr, scale: int = 1) -> None:
    """`into += expr * scale`, in place."""
    for term in expr.terms if isinstance(expr, Add) else (expr,):
        monomial, coefficient = _term(term)
        into[monomial] = into.get(monomial, 0) + coefficient * scale


def build(terms: Polynomial) -> Expr:
    """The canonical expression of a polynomial, which it may change."""
    if len(terms) > 1:
        _recombine(terms)
    nodes = []
    constant = 0
    for monomial in sorted(terms, key=_order) if len(terms) > 1 else terms:
        coefficient = terms[monomial]
        if not monomial:
            constant = coefficient
        elif coefficient == 1 and len(monomial) == 1:
            nodes.append(monomial[0])
        elif coefficient:
            nodes.append(Mul(coefficient, monomial))
    if not nodes:
        return const(constant)
    if constant:
        nodes.append(const(constant))
    return nodes[0] if len(nodes) == 1 else Add(tuple(nodes))


def _order(monomial: Monomial) -> tuple[int | str, ...]:
    # Falling degree, then lexicographic: a monomial order, as `divide` needs.
    return (-len(monomial), *[atom.key for atom in monomial])


def product(left: Monomial, right: Monomial) -> Monomial:
    """The product of two monomials."""
    if not left or not right:
        return left or right
    return tuple(sorted(left + right, key=_atom_key))


def _atom_key(atom: Expr) -> str:
    return atom.key


def quotient(monomial: Monomial, by: Monomial) -> Monomial | None:
    """`monomial / by`, or None where an atom of `by` is missing."""
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _recombine(terms: Polynomial) -> None:
    """`b*(x//b) + x%b` becomes x, so that an index split and flattened again is itself; in place."""
    atoms = {atom.__class__ for monomial in terms for atom in monomial}
    while FloorDiv in atoms and FloorMod in atoms and _recombine_once(terms):
        pass


def _recombine_once(terms: Polynomial) -> bool:
    for monomial in sorted(terms, key=_order):
        for atom in monomial:
            if isinstance(atom, FloorDiv) and _recombine_at(terms, monomial, atom):
                return True
    return False


def _recombine_at(terms: Polynomial, monomial: Monomial, atom: FloorDiv) -> bool:
    divisor = polynomial(atom.b)
    others = quotient(monomial, product((atom,), min(divisor, key=_order))) if divisor else None
    if others is None:
        return False
    parts = {product((atom,), key): part for key, part in divisor.items()}
    accumulate(parts, division.floor_mod(atom.a, atom.b))
    parts = {product(others, key): part for key, part in parts.items() if part}
    sign = 1 if terms[monomial] * parts[monomial] > 0 else -1
    count = sign * min([_share(terms.get(key, 0), part, sign) for key, part in parts.items()])
    if not count:
        return False
    for key, part in parts.items():
        terms[key] -= part * count
    for key, part in polynomial(atom.a).items():
        flat = product(others, key)
        terms[flat] = terms.get(flat, 0) + part * count
    return True


def _share(present: int, part: int, sign: int) -> int:
    """How many times `part * sign` is contained in the coefficient `present`."""
    count = abs(present) // abs(part)
    return count if present * part * sign > 0 else 0


@lru_cache(CACHE_SIZE)
def add(a: Expr, b: Expr) -> Expr:
    """`a + b`."""
    if isinstance(b, Const):
        if isinstance(a, Const):
            return const(a.value + b.value)
        if not b.value:
            return a
    terms = polynomial(a)
    accumulate(terms, b)
    return build(terms)


@lru_cache(CACHE_SIZE)
def subtract(a: Expr, b: Expr) -> Expr:
    """`a - b`."""
    terms = polynomial(a)
    accumulate(terms, b, -1)
    return build(terms)


@lru_cache(CACHE_SIZE)
def multiply(a: Expr, b: Expr) -> Expr:
    """`a * b`, with products of sums multiplied out."""
    if isinstance(a, Const):
        a, b = b, a
    if isinstance(b, Const):
        if b.value == 1:
            return a
        if not b.value:
            return ZERO
        return build({monomial: coefficient * b.value for monomial, coefficient in polynomial(a).items()})
    terms: Polynomial = {}
    right = polynomial(b).items()
    for left, scale in polynomial(a).items():
        for monomial, coefficient in right:
            key = product(left, monomial)
            terms[key] = terms.get(key, 0) + scale * coefficient
    return build(terms)


def negate(expr: Expr) -> Expr:
    """`-expr`."""
    return multiply(expr, MINUS_ONE)


def content(expr: Expr) -> int:
    """The greatest common divisor of the coefficients; 0 for 0."""
    return gcd(*polynomial(expr).values())


def truncated(value: int, by: int) -> int:
    """`value / by` rounded towards zero."""
    return value // by if (value < 0) == (by < 0) else -(-value // by)


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Polynomials q and r with `a == q*b + r`, as much in q as the leading term of b divides; b is not 0."""
    divisor = polynomial(b)
    lead = min(divisor, key=_order)
    rest = polynomial(a)
    result: Polynomial = {}
    pending = sorted(rest, key=_order)
    while pending:
        monomial = pending.pop(0)
        factors = quotient(monomial, lead)
        count = truncated(rest[monomial], divisor[lead]) if factors is not None else 0
        if factors is None or not count:
            continue
        result[factors] = result.get(factors, 0) + count
        for other, coefficient in divisor.items():
            key = product(factors, other)
            if key not in rest:
                rest[key] = 0
                pending = sorted([*pending, key], key=_order)
            rest[key] -= coefficient * count
    return build(result), build(rest)


# At the end: it needs the functions above, and `build` needs it when called.
from . import division  # noqa: E402
