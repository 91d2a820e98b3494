"""Bounds of named cases."""

from __future__ import annotations

import pytest

from webrelax.compiler.symbolic import (
    Expr,
    Opaque,
    Range,
    Var,
    align_up,
    as_expr,
    bounds,
    ceildiv,
    lower_bound,
    maximum,
    minimum,
    upper_bound,
)

n, m = Var("n"), Var("m")
p = Var("p", 1)
z = Var("z", None, None)
k = Var("k", 0, 7)
s = Var("s", -3, 2)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (as_expr(5), (5, 5)),
        (n, (0, None)),
        (z, (None, None)),
        (k * 64 + 3, (3, 451)),
        (7 - k, (0, 7)),
        (n - m, (None, None)),
        (k - n, (None, 7)),
        (k * s, (-21, 14)),
        (s * s, (0, 9)),
        (s * s * s, (-27, 8)),
        (k * z, (None, None)),
        (n * m + 1, (1, None)),
        (k // 3, (0, 2)),
        (s // 2, (-2, 1)),
        (k // p, (0, 7)),
        (-k // p, (-7, 0)),
        (s // p, (-3, 2)),
        (n // m, (None, None)),  # m may be 0
        (z % 8, (0, 7)),
        (n % p, (0, None)),
        (k % p, (0, 7)),
        (n % m, (None, None)),
        (z % -4, (-3, 0)),
        (minimum(n, 4), (0, 4)),
        (minimum(z, k), (None, 7)),
        (maximum(n, 4), (4, None)),
        (maximum(s, k), (0, 7)),
    ],
)
def test_bounds(expr: Expr, expected: Range) -> None:
    assert bounds(expr) == expected
    assert (lower_bound(expr), upper_bound(expr)) == expected


def test_ranges_narrow_the_bounds_of_variables() -> None:
    assert bounds(n, {n: (None, 2048)}) == (0, 2048)
    assert bounds(n, {n: (16, None)}) == (16, None)
    assert bounds(n * 576 + k, {n: (1, 4)}) == (576, 2311)
    assert bounds(k, {k: (-5, 100)}) == (0, 7)
    assert bounds(n // m, {m: (2, 4), n: (0, 9)}) == (0, 4)
    assert upper_bound(align_up(n, 64), {n: (0, 2048)}) == 2048
    assert upper_bound(ceildiv(n, 64) * m, {n: (0, 100), m: (0, 3)}) == 6
    assert upper_bound(n * m, {n: (0, 100)}) is None
    assert bounds(n + 1, {}) == (1, None)
    assert bounds(7, {n: (1, 2)}) == (7, 7)


def test_a_range_outside_the_bounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="of k lies outside"):
        bounds(k + 1, {k: (9, 12)})


def test_bounds_of_a_run_time_integer_are_its_own() -> None:
    assert bounds(Opaque(_Token(), 0, 49151) * 576 + k) == (0, 49151 * 576 + 7)
    assert bounds(Opaque(_Token())) == (None, None)
    assert Opaque(_Token(), 0, 63) % 64 == Opaque(_Token(), 0, 63)


class _Token:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Token)

    def __hash__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "token"

    def substitute(self, mapping: object, /) -> _Token:
        return self

    def variables(self) -> tuple[Var, ...]:
        return ()
