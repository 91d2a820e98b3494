"""Proofs that the compiler needs, and claims that nobody may prove."""

from __future__ import annotations

import time

import pytest

from webrelax.compiler.symbolic import (
    Expr,
    Var,
    align_up,
    as_expr,
    ceildiv,
    divide_exact,
    is_multiple_of,
    maximum,
    minimum,
    prove_equal,
    prove_less,
    prove_less_equal,
)

n, m, i = Var("n"), Var("m"), Var("i")
z = Var("z", None, None)
p, q = Var("p", 1), Var("q", 1)
k = Var("k", 0, 7)
bounded = Var("bounded", 0, 2048)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (0, n),
        (n, n),
        (n, n + m),
        (n, ceildiv(n, 64) * 64),
        (ceildiv(n, 64) * 64, n + 63),
        (n // 64 * 64, n),
        (n // p * p, n),
        (n % p, p - 1),
        (n % p, n),
        (n // p, n),
        (n % 8, n),
        (n, n * p),
        (n * p, n * p * q),
        (n + m, (n + 1) * (m + 1)),
        (p + q - 1, p * q),
        (minimum(n, m), n),
        (minimum(n, m) * 4, n * 4),
        (n * minimum(m, 4), n * m),
        (n, maximum(n, m)),
        (minimum(n, p), minimum(n, p + 3)),
        (maximum(n, 4), maximum(n, m, 6)),
        (ceildiv(m, 64), ceildiv(m + n, 64)),
        (align_up(m, 64), align_up(m + 64, 64) - 64),
        (align_up(bounded, 64) * 576 * 4, 2048 * 576 * 4),
        (ceildiv(p, 64), p),
        (z % 64 // 8, 7),
        (n - 1, n),
    ],
)
def test_proves_less_equal(less: Expr | int, more: Expr | int) -> None:
    assert prove_less_equal(less, more)
    assert prove_less(as_expr(less) - 1, more)
    assert not prove_less(more, less)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (n, m),
        (n, n * m),  # m may be 0
        (n * 2, n * m),
        (z, z * z - 1),
        (n % m, m),  # undefined for m = 0
        (n // m, n),
        (n // m * m, n),
        (ceildiv(n, 64), n - 1),
        (align_up(n, 64), n + 62),
        (maximum(n, m), n),
        (n, minimum(n, m)),
        (minimum(n, m), minimum(n, p)),
        (z % p, z),
        (z // p, z),
        (bounded, 2047),
        (ceildiv(m + n, 64), ceildiv(m, 64)),
        (ceildiv(m + 1, 64), ceildiv(m, 64)),
    ],
)
def test_does_not_prove_less_equal(less: Expr | int, more: Expr | int) -> None:
    assert not prove_less_equal(less, more)
    assert not prove_less(less, more)


def test_proves_equal() -> None:
    b = Var("b")
    assert prove_equal(b * n * 9, n * 9 * b)
    assert prove_equal((n + 1) * (m + 1), n * m + n + m + 1)
    assert prove_equal(n - n // 4 * 4, n % 4)
    assert prove_equal(2 * (n % 4) + 8 * (n // 4), n * 2)
    assert prove_equal(n % p + p * (n // p), n)
    assert prove_equal(Var("one", 1, 1) * 3, 3)
    assert prove_equal(4, as_expr(4))
    assert not prove_equal(n, m)
    assert not prove_equal(n * m // m, n)
    assert not prove_equal(n, Var("n", 1))
    assert not prove_equal(3, 4)


def test_multiples() -> None:
    assert is_multiple_of(n * 64 + m * 128, 64)
    assert is_multiple_of(n * m * 6, 3)
    assert is_multiple_of(align_up(n, 256), 256)
    assert is_multiple_of(align_up(n, 256), -64)
    assert is_multiple_of(minimum(n * 64, 256), 64)
    assert is_multiple_of(n * 8 % 64, 8)
    assert is_multiple_of(n - n % 4, 4)
    assert is_multiple_of(0, 7)
    assert is_multiple_of(n, 1)
    assert not is_multiple_of(n, 2)
    assert not is_multiple_of(n * 64 + 32, 64)
    assert not is_multiple_of(n * 4 // 8, 2)
    assert not is_multiple_of(n * m, 2)
    with pytest.raises(ValueError, match="other than 0"):
        is_multiple_of(n, 0)


def test_exact_quotients() -> None:
    assert divide_exact(n * 64 + m * 128, 64) == n + m * 2
    assert divide_exact(n * 64, -64) == -n
    assert divide_exact(align_up(n, 64), 64) == ceildiv(n, 64)
    assert divide_exact(12, 4) == 3
    assert divide_exact(n * p + p, p) == n + 1
    assert divide_exact(n * (p + q), p + q) == n
    assert divide_exact(n * 64 + 32, 64) is None
    assert divide_exact(n * m, m) is None  # m may be 0
    assert divide_exact(n * p + 1, p) is None
    assert divide_exact(0, 0) is None


def test_a_hopeless_proof_ends_soon() -> None:
    less = more = as_expr(0)
    for j in range(6):
        less += (n + j) // (2 * j + 3) + minimum(n * 2 + j, m * 3 - j)
        more += (m + j) % (2 * j + 5) + maximum(n + j * 3, m * 3 - j * n)
    start = time.process_time()
    assert not prove_less_equal(less, more)
    assert time.process_time() - start < 2
