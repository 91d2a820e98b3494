"""Canonical forms: the cases that shapes, indices and sizes consist of."""

from __future__ import annotations

import pytest

from webrelax.compiler.symbolic import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Mul,
    Var,
    align_up,
    as_expr,
    ceildiv,
    maximum,
    minimum,
)

n, m, b, i, x = (Var(name) for name in "nmbix")
z = Var("z", None, None)
p = Var("p", 1)
k = Var("k", 0, 7)
h = Var("h", 0, 8)
d = Var("d", 0, 63)
four = Var("four", 4, 4)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (b * n * 9, n * 9 * b),
        ((n + 1) * (m + 1), n * m + n + m + 1),
        ((n - m) * (n + m), n * n - m * m),
        (n + m - n, m),
        (n - n, 0),
        (0 * n, 0),
        (3 - n, -n + 3),
        (2 * (n + 1) - 2, n * 2),
        (+n, n),
        # Division and remainder by constants.
        ((4 * n) // 4, n),
        ((n * 64) // 64, n),
        ((4 * n + 6) // 2, 2 * n + 3),
        ((8 * n + 4 * m) // 16, (2 * n + m) // 4),
        ((5 * n) // 4, n + n // 4),
        ((n + 7) // 4, (n + 3) // 4 + 1),
        (n // -4, -n // 4),
        (n % -4, -((-n) % 4)),
        ((n * 8 + k) % 8, k),
        ((n * 8 + k) // 8, n),
        ((i * 576 + h * 64 + d) // 576, i),
        ((i * 576 + h * 64 + d) % 576, h * 64 + d),
        ((i * 576 + h * 64 + d) // 64, i * 9 + h),
        ((h * 64 + d) // 64, h),
        ((h * 64 + d) % 64, d),
        ((i * 8 + k + 8) // 8, i + 1),
        ((i * 8 + k - 8) // 8, i - 1),
        ((7 - k) // 8, 0),
        ((7 - k) % 8, 7 - k),
        ((4 * n) % 8, (n % 2) * 4),
        ((i * 64 + d) % 128, (i % 2) * 64 + d),
        ((n % 8) % 8, n % 8),
        ((z % 64) % 8, z % 8),
        ((n * 9) % 8, n % 8),
        ((n + 8 * m) % 8, n % 8),
        ((n - n % 8) % 8, 0),
        ((z // 4) // 8, z // 32),
        ((z // 4 + 3) // 8, (z + 12) // 32),
        ((z // 8) % 8, (z % 64) // 8),
        (k // 8, 0),
        (k % 8, k),
        (n % 1, 0),
        (n // four, n // 4),
        # An index split and flattened again.
        ((i // 8) * 8 + i % 8, i),
        ((i // 32) * 32 + ((i // 8) % 4) * 8 + i % 8, i),
        ((i // p) * p + i % p, i),
        ((i // (p + 1)) * (p + 1) + i % (p + 1), i),
        ((x // 64) * 128 + (x % 64) * 2, x * 2),
        # Symbolic divisors that are proved positive.
        ((n * p) // p, n),
        ((n * p) % p, 0),
        ((n * p + m) // p, n + m // p),
        ((n * p * 4) // (p * 4), n),
        ((n * p) // (m * p + p), n // (m + 1)),
        ((n * (m + 1)) // (m + 1), n),
        (((m + 8) * i + k) // (m + 8), i),
        (((m + 8) * i + k) % (m + 8), k),
        ((i * 8 * p + k) // (8 * p), i),
        ((i * 8 * p + k) % (8 * p), k),
        ((i * 8 + k) // (8 * p), i // p),
        ((i * 8 + k) % (8 * p), i % p * 8 + k),
        ((n % p) // p, 0),
        ((n % p) % p, n % p),
        ((n % (p * 4)) % p, n % p),
        ((z // p) // 4, z // (4 * p)),
        (p // p, 1),
        # Rounding up.
        (ceildiv(n * 64, 64), n),
        (ceildiv(130, 64), 3),
        (align_up(130, 64), 192),
        (align_up(n * 64, 64), n * 64),
        # Minimum and maximum.
        (minimum(n, n + 1), n),
        (maximum(n, n + 1), n + 1),
        (minimum(n, m, n), minimum(m, n)),
        (minimum(minimum(n, 4), m), minimum(n, m, 4)),
        (minimum(k, 7), k),
        (minimum(k, 3, 5), minimum(k, 3)),
        (maximum(n, 0), n),
        (maximum(n, -1, m), maximum(m, n)),
        (minimum(n, maximum(n, m)), n),
        (maximum(n, minimum(n, m)), n),
        (minimum(n, align_up(n, 64)), n),
        (minimum(5), 5),
    ],
)
def test_simplifies(found: Expr, expected: Expr | int) -> None:
    assert found == expected
    assert hash(found) == hash(expected)
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ((n * m) // m, FloorDiv),  # m may be 0
        ((n * m) % m, FloorMod),
        (m // m, FloorDiv),
        (m % m, FloorMod),
        ((n * z) // z, FloorDiv),
        (as_expr(0) // m, FloorDiv),
        (n // 0, FloorDiv),
        (as_expr(4) % as_expr(0), FloorMod),
        ((n * m) // (m * p), FloorDiv),  # p cancels alone, of which there is none above
        (n // 4 * 4, Mul),
        (n // 4 + n // 4, Mul),  # not n // 2
        ((n + m) // 4 - n // 4, Add),
        ((z % 64) // 8, FloorDiv),
        ((i * 576 + x) // 576, Add),  # x has no upper bound
        (((i * 576 + x) // 576) - i, FloorDiv),
        ((h * 64 + d + 1) // 64 - h, FloorDiv),  # the sum of the rest reaches 64
    ],
)
def test_keeps(found: Expr, kind: type[Expr]) -> None:
    assert type(found) is kind


def test_a_cancelled_factor_leaves_the_divisor_that_may_be_zero() -> None:
    assert (n * p) // (m * p) == FloorDiv(n * p, m * p)
    assert (n * p * 8) // ((m + 1) * p * 4) == (n * 2) // (m + 1)


def test_constants_fold() -> None:
    assert as_expr(-7) // 2 == -4
    assert as_expr(-7) % 2 == 1
    assert 7 // as_expr(-2) == -4
    assert 7 % as_expr(-2) == -1
    assert 7 - as_expr(2) == 5
    assert isinstance(as_expr(3) * 4, Const)
