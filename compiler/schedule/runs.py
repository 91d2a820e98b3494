"""How far a sum over k is unrolled: what of its operands stays the same, or changes by constants, along k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm

from ..symbolic import (
    Add,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Opaque,
    Var,
    as_int,
    is_multiple_of,
    substitute,
    variables,
)
from ..tir import Scalar
from .contraction import Contraction
from .walk import expressions_in

ENOUGH = 8  # unrolled positions, where more only repeat them with other constants


def runs(found: Contraction, nodes: Sequence[Scalar], enough: int = ENOUGH, most: int = 32) -> tuple[int, int]:
    """(inner, outer) run lengths of the reduced index, both dividing its range and `most`, inner dividing outer.

    Within an inner run, which is to be unrolled, indices differ by constants, and a packed word is the same. It is a
    part of a word's positions where the whole is longer than `enough` and unrolling it would make nothing else known.
    Within an outer run, the values of a quantization group stay the same.
    """
    usable = [_usable_periods(found, node, most) for node in nodes]
    # What one operand needs for its words holds for the others too: the longest of the shortest periods.
    inner = max((periods[0] for periods in usable if periods), default=None)
    if inner is None:
        inner = next((p for p in (4, 2) if is_multiple_of(found.length, p)), 1)
    outer = inner
    for period in sorted({p for own in usable for p in own}):
        if period % outer == 0:
            outer = period
    periodic = {pair for node in nodes for e in expressions_in(node) for pair in _periodic(e, found.k)}
    steps = [(expr, period) for expr, period in periodic if _steps(expr, period, found.k, inner)]
    while inner > enough and all(_steps(expr, period, found.k, inner // 2) for expr, period in steps):
        inner //= 2
    return inner, outer


def _usable_periods(found: Contraction, node: Scalar, most: int) -> list[int]:
    periods = {period for e in expressions_in(node) for _, period in _periodic(e, found.k)}
    return sorted(p for p in periods if p % 4 == 0 and most % p == 0 and is_multiple_of(found.length, p))


def _periodic(expr: Expr, k: Var) -> Iterator[tuple[Expr, int]]:
    """The `(k + ...) // c` and `% c` inside an index, and after how many steps of k each starts anew."""
    match expr:
        case FloorDiv(a, b) | FloorMod(a, b):
            divisor, step = as_int(b), _difference(a, k, k, 1)
            if divisor is not None and k in variables(a):
                yield expr, divisor // gcd(divisor, step) if step else divisor
            yield from _periodic(a, k)
            yield from _periodic(b, k)
        case Add(parts) | Mul(_, parts) | Min(parts) | Max(parts):
            for part in parts:
                yield from _periodic(part, k)
        case Opaque(payload):
            assert isinstance(payload, Scalar)
            for inner in expressions_in(payload):
                yield from _periodic(inner, k)


def _steps(expr: Expr, period: int, k: Var, run: int) -> bool:
    """Whether an index changes by constants within each aligned run of k."""
    whole = lcm(period, run)
    first = Var("probe", 0, None) * whole + Var("within", 0, whole // run - 1) * run
    return all(_difference(expr, k, first, at) is not None for at in range(1, run))


def _difference(expr: Expr, k: Var, start: Expr, by: int) -> int | None:
    """By how much an index grows from k = start to start + by, if that is the same for all values."""
    return as_int(substitute(expr, {k: start + by}) - substitute(expr, {k: start}))
