"""Variables, substitution, evaluation, and the run-time integers inside expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from webrelax.compiler.symbolic import (
    Expr,
    Opaque,
    Var,
    evaluate,
    map_opaque,
    maximum,
    minimum,
    substitute,
    variables,
    walk,
)

n, m, i = Var("n"), Var("m"), Var("i")
p = Var("p", 1)
k = Var("k", 0, 7)


@dataclass(frozen=True)
class Load:
    """An element of a buffer."""

    buffer: str
    index: Expr

    def __str__(self) -> str:
        return f"{self.buffer}[{self.index}]"

    def substitute(self, mapping: Mapping[Any, Expr | int], /) -> Load:
        return Load(self.buffer, substitute(self.index, mapping))

    def variables(self) -> tuple[Var, ...]:
        return variables(self.index)


def test_variables_are_sorted_by_name_and_listed_once() -> None:
    assert variables(n * m + n % 4 + minimum(i, k * 3)) == (i, k, m, n)
    assert variables(n - n) == ()
    assert variables(7) == ()
    assert variables(Opaque(Load("ids", n + i)) + m) == (i, m, n)


def test_substitution_is_simultaneous() -> None:
    assert substitute(n * 2 + m, {n: m, m: n}) == m * 2 + n
    assert substitute(n + m, {n: n + 1}) == n + m + 1


def test_substitution_simplifies_again() -> None:
    assert substitute((n * 8 + i) // 8, {i: k}) == n
    assert substitute(n * m // m, {m: p}) == n
    assert substitute(minimum(n, m), {m: n + 1}) == n
    assert substitute(maximum(n, 4) % 4, {n: 7}) == 3
    assert substitute(n * m, {n: 0}) == 0
    assert substitute(5, {n: 0}) == 5


def test_what_does_not_change_is_the_same_object() -> None:
    expr = (n + 3) // 4 * m
    assert substitute(expr, {i: 1}) is expr
    assert substitute(expr, {n: n, m: m}) is expr


def test_evaluates() -> None:
    assert evaluate(-n // 4 + m % 3, {n: 5, m: 8}) == 0
    assert evaluate(minimum(n, m) * maximum(n, m), {n: 5, m: 8}) == 40
    assert evaluate(5, {}) == 5
    with pytest.raises(KeyError):
        evaluate(n + m, {n: 1})


def test_a_divisor_that_may_be_zero_stays_until_it_is_known() -> None:
    ratio = n * m // m
    assert evaluate(ratio, {n: 5, m: 3}) == 5
    for expr in (ratio, substitute(ratio, {m: 0}), n % m, 5 // (m * 2)):
        with pytest.raises(ZeroDivisionError):
            evaluate(expr, {n: 5, m: 0})
    assert substitute(ratio, {m: 3}) == n


def test_run_time_integers() -> None:
    token = Opaque(Load("ids", i), 0, 49151)
    row = token * 576 + k
    assert str(row) == "k + ids[i]*576"
    assert row // 576 == token
    assert row % 576 == k
    assert Opaque(Load("ids", i), 0, 49151) == token
    assert Opaque(Load("ids", i)) != token
    assert substitute(row, {i: n + 1, k: 0}) == Opaque(Load("ids", n + 1), 0, 49151) * 576
    assert substitute(row, {n: 0}) is row
    with pytest.raises(TypeError, match=r"ids\[i\]"):
        evaluate(row, {i: 0, k: 0})


def test_replaces_run_time_integers() -> None:
    token = Opaque(Load("ids", i), 0, 9)
    expr = minimum(token * 4 + n, m) % 7 + (token + m) // (n + 1)
    renamed = map_opaque(expr, lambda opaque: Opaque(Load("other", i), opaque.lower, opaque.upper))
    assert str(renamed) == str(expr).replace("ids", "other")
    assert map_opaque(expr, lambda _: k) == minimum(k * 4 + n, m) % 7 + (k + m) // (n + 1)
    assert [str(part) for part in walk(token * 4 + n)] == ["n + ids[i]*4", "n", "ids[i]*4", "ids[i]"]
