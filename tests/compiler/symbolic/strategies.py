"""Random integer formulas, what they are by Python's own arithmetic, and points to try them at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hypothesis import strategies as st

from webrelax.compiler.symbolic import Expr, Var, as_expr, maximum, minimum

LENGTH = Var("n")
SIZE = Var("p", 1)
ANY = Var("z", None, None)
NEGATIVE = Var("q", None, -1)
LANE = Var("k", 0, 7)
QUARTER = Var("d", 0, 3)
SIGNED = Var("s", -3, 2)
RADIX = Var("r", 2, 5)
FIXED = Var("c", 4, 4)
VARIABLES = (LENGTH, SIZE, ANY, NEGATIVE, LANE, QUARTER, SIGNED, RADIX, FIXED)

_SAMPLES = {
    LENGTH: (0, 1, 3, 8, 31, 1000),
    SIZE: (1, 2, 3, 8, 33, 1001),
    ANY: (-65, -8, -1, 0, 2, 100),
    NEGATIVE: (-100, -33, -8, -3, -1),
}
_NUMBERS = (-16, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 32, 64)
_OPERATIONS = ("+", "-", "*", "//", "%", "min", "max")

Values = Mapping[Var, int]


@dataclass(frozen=True)
class Formula:
    """An operation on formulas, variables or integers; nothing is simplified."""

    operation: str
    left: Formula | Var | int
    right: Formula | Var | int


def build(formula: Formula | Var | int) -> Expr:
    """The formula as a symbolic integer."""
    if not isinstance(formula, Formula):
        return as_expr(formula)
    a, b = build(formula.left), build(formula.right)
    match formula.operation:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return minimum(a, b)
    return maximum(a, b)


def compute(formula: Formula | Var | int, values: Values) -> int:
    """The formula's value; ZeroDivisionError where it has none."""
    if isinstance(formula, Var):
        return values[formula]
    if isinstance(formula, int):
        return formula
    a, b = compute(formula.left, values), compute(formula.right, values)
    match formula.operation:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return min(a, b)
    return max(a, b)


def defined(formula: Formula | Var | int, values: Values) -> int | None:
    """The formula's value, None where it divides by zero."""
    try:
        return compute(formula, values)
    except ZeroDivisionError:
        return None


def domain(var: Var) -> Sequence[int]:
    """All values of a bounded variable, some of an unbounded one."""
    if var.lower is not None and var.upper is not None:
        return range(var.lower, var.upper + 1)
    return _SAMPLES[var]


def points(variables: Sequence[Var]) -> Iterator[dict[Var, int]]:
    """Every combination of the variables' values in `domain`."""
    for values in product(*[domain(var) for var in variables]):
        yield dict(zip(variables, values, strict=True))


def formulas(variables: Sequence[Var]) -> st.SearchStrategy[Formula | Var | int]:
    """Formulas of all operations, often with constant divisors and factors."""
    numbers = st.sampled_from(_NUMBERS)
    leaves: st.SearchStrategy[Formula | Var | int] = st.sampled_from(variables) | numbers

    def extend(parts: st.SearchStrategy[Formula | Var | int]) -> st.SearchStrategy[Formula]:
        by_number = st.builds(Formula, st.sampled_from(("*", "//", "%", "+")), parts, numbers)
        return by_number | st.builds(Formula, st.sampled_from(_OPERATIONS), parts, parts)

    return st.recursive(leaves, extend, max_leaves=10)


def indices(variables: Sequence[Var]) -> st.SearchStrategy[Formula | Var | int]:
    """Formulas such as flattened and split indices: sums of multiples, divided by and taken modulo constants."""
    strides = st.sampled_from((1, 2, 3, 4, 6, 8, 12, 16, 32))
    terms: st.SearchStrategy[Formula | Var | int] = st.builds(
        Formula, st.just("*"), st.sampled_from(variables), strides
    )

    def extend(parts: st.SearchStrategy[Formula | Var | int]) -> st.SearchStrategy[Formula]:
        sums = st.builds(Formula, st.sampled_from(("+", "+", "-")), parts, parts | st.integers(-9, 9))
        return sums | st.builds(Formula, st.sampled_from(("//", "%", "*")), parts, strides)

    return st.recursive(terms, extend, max_leaves=10)


@st.composite
def cases(draw: st.DrawFn, count: int = 1) -> tuple[tuple[Var, ...], tuple[Formula | Var | int, ...]]:
    """Up to three variables, and formulas of them."""
    variables = tuple(draw(st.lists(st.sampled_from(VARIABLES), min_size=1, max_size=3, unique=True)))
    kind = draw(st.sampled_from((formulas, indices)))
    return variables, tuple(draw(kind(variables)) for _ in range(count))
