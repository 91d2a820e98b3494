"""What every expression is, whatever it stands for: a value that compares, hashes, copies and prints."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from webrelax.compiler.symbolic import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Var,
    align_up,
    as_expr,
    as_int,
    ceildiv,
    maximum,
    minimum,
)

n, m = Var("n"), Var("m")
SAMPLES = (as_expr(-3), n, n * 2, n * m + n * 3 - 1, (n + 3) // 4, n % m, minimum(n, 4), maximum(n, m, 2))


def test_variables_are_equal_if_name_and_bounds_are() -> None:
    assert Var("n") == n
    assert hash(Var("n")) == hash(n)
    assert Var("n", 1) != n
    assert Var("n", 0, 7) != n
    assert Var("m") != n
    assert n != "n"


def test_constants_equal_integers() -> None:
    assert as_expr(4) == 4
    assert as_expr(4) == 4
    assert hash(as_expr(4)) == hash(4)
    assert as_expr(4) != 5
    assert n != 4
    assert {as_expr(4): "four"}[4] == "four"  # type: ignore[index]
    assert as_expr(5000) == Const(5000)


def test_integers_in_and_out() -> None:
    class Index:
        def __index__(self) -> int:
            return 3

    assert as_int(as_expr(3)) == 3
    assert as_int(3) == 3
    assert as_int(n) is None
    assert as_expr(n) is n
    assert as_expr(Index()) == 3  # type: ignore[arg-type]
    assert n + Index() == n + 3  # type: ignore[operator]
    with pytest.raises(TypeError):
        as_expr(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        as_expr("n")  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["+", "-", "*", "//", "%"])
def test_operators_refuse_what_is_no_integer(operation: str) -> None:
    for text in (f"n {operation} 1.5", f"1.5 {operation} n", f"n {operation} None"):
        with pytest.raises(TypeError):
            eval(text, {"n": n})


def test_truth_is_known_of_constants_only() -> None:
    assert as_expr(1)
    assert not as_expr(0)
    with pytest.raises(TypeError, match="n % 4"):
        bool(n % 4)


def test_only_an_empty_loop_may_have_an_empty_range() -> None:
    assert Var("i", 0, -1).upper == -1
    with pytest.raises(ValueError, match=r"i has the empty range 4\.\.2"):
        Var("i", 4, 2)


def test_nodes_match_by_their_parts() -> None:
    match n * m * 3 + (n + 1) // 4 - 2:
        case Add((Mul(3, (first, second)), FloorDiv(Add((Var(name), Const(1))), Const(4)), Const(-2))):
            assert (first, second, name) == (m, n, "n")
        case other:
            pytest.fail(f"no match: {other}")
    match minimum(n % 4, 2), maximum(n, 4):
        case Min((FloorMod(Var("n", 0, None), Const(4)), Const(2))), Max((Var(), Const(4))):
            pass
        case others:
            pytest.fail(f"no match: {others}")


@pytest.mark.parametrize("expr", SAMPLES)
def test_copies_and_pickles(expr: Expr) -> None:
    assert copy.copy(expr) is expr
    assert copy.deepcopy(expr) is expr
    again = pickle.loads(pickle.dumps(expr))
    assert again == expr
    assert hash(again) == hash(expr)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (n * 4 + 1, "n*4 + 1"),
        (1 - n, "-n + 1"),
        (m - n * 4, "m - n*4"),
        (-n * m, "-m*n"),
        (n * n * -3 - 5, "-n*n*3 - 5"),
        ((n + 3) // 4, "(n + 3)//4"),
        (n // 4 * 8, "(n//4)*8"),
        (n * 8 // 3 % 5, "((n*8) % 15)//3"),
        (n % 4, "n % 4"),
        (n // -m, "n//(-m)"),
        (minimum(4, n), "min(n, 4)"),
        (maximum(m + n, 4) * 2, "max(m + n, 4)*2"),
        (ceildiv(n, 64), "(n + 63)//64"),
        (align_up(n, 64), "((n + 63)//64)*64"),
        (as_expr(-7), "-7"),
    ],
)
def test_prints(expr: Expr, text: str) -> None:
    assert str(expr) == text
    assert repr(expr) == text


def test_text_and_order_do_not_depend_on_the_process() -> None:
    code = (
        "from webrelax.compiler.symbolic import Var, maximum, minimum\n"
        "a, b, c, d = (Var(name) for name in 'abcd')\n"
        "print((d + c * a + b * c) * (a + 1) // 3 + minimum(d, b, a // 7) * maximum(c % 5, a, 9) + d % (b + a))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
