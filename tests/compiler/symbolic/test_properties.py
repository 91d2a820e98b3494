"""Whatever is simplified, bounded or proved agrees with Python's arithmetic on the plain formula."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from webrelax.compiler.symbolic import (
    Expr,
    Var,
    as_expr,
    bounds,
    divide_exact,
    evaluate,
    is_multiple_of,
    map_opaque,
    maximum,
    minimum,
    prove_equal,
    prove_less,
    prove_less_equal,
    substitute,
    variables,
    walk,
)

from .strategies import LENGTH, VARIABLES, Formula, Values, build, cases, defined, domain, points

Case = tuple[tuple[Var, ...], tuple[Formula | Var | int, ...]]
many = settings(max_examples=150, deadline=None)


def _within(value: int, span: tuple[int | None, int | None]) -> bool:
    return (span[0] is None or span[0] <= value) and (span[1] is None or value <= span[1])


@many
@given(cases())
def test_simplified_formulas_keep_their_value_and_stay_within_bounds(case: Case) -> None:
    names, (formula,) = case
    expr = build(formula)
    span = bounds(expr)
    assert set(variables(expr)) <= set(names)
    for values in points(names):
        expected = defined(formula, values)
        if expected is not None:
            assert evaluate(expr, values) == expected, (str(expr), values)
            assert _within(expected, span), (str(expr), span, values)


@many
@given(cases(count=2))
def test_proofs_hold_everywhere(case: Case) -> None:
    names, (left, right) = case
    a, b = build(left), build(right)
    less, less_equal, equal = prove_less(a, b), prove_less_equal(a, b), prove_equal(a, b)
    ratio = divide_exact(a, b)
    factors = [k for k in (2, 3, 4, 8, -16) if is_multiple_of(a, k)]
    exact = {k: divide_exact(a, k) for k in factors}
    assert less_equal or not less
    assert None not in exact.values()
    for values in points(names):
        x, y = defined(left, values), defined(right, values)
        if x is None:
            continue
        for k, quotient in exact.items():
            assert quotient is not None
            assert k * evaluate(quotient, values) == x, (str(a), k, values)
        if y is not None:
            assert x < y or not less, (str(a), str(b), values)
            assert x <= y or not less_equal, (str(a), str(b), values)
            assert x == y or not equal, (str(a), str(b), values)
            assert ratio is None or evaluate(ratio, values) * y == x, (str(a), str(b), values)


@many
@given(cases(), st.data())
def test_bounds_hold_in_narrower_ranges(case: Case, data: st.DataObject) -> None:
    names, (formula,) = case
    ranges: dict[Var, tuple[int | None, int | None]] = {}
    for var in names:
        ends = sorted(data.draw(st.tuples(st.sampled_from(domain(var)), st.sampled_from(domain(var)))))
        ranges[var] = data.draw(st.sampled_from(((ends[0], ends[1]), (ends[0], None), (None, ends[1]))))
    expr = build(formula)
    span = bounds(expr, ranges)
    for values in points(names):
        expected = defined(formula, values)
        if expected is not None and all(_within(values[var], ranges[var]) for var in names):
            assert _within(expected, span), (str(expr), ranges, values)


@many
@given(cases(count=3), st.data())
def test_substitution_and_evaluation_commute(case: Case, data: st.DataObject) -> None:
    names, (outer, first, second) = case
    # Clamping keeps what replaces a variable within the variable's bounds.
    replaced = data.draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    replacements = {var: _clamped(formula, var) for var, formula in zip(replaced, (first, second), strict=False)}
    expr = substitute(build(outer), {var: build(value) for var, value in replacements.items()})
    for values in points(names):
        inner = {var: defined(replacements.get(var, var), values) for var in names}
        known: Values = {var: value for var, value in inner.items() if value is not None}
        if len(known) == len(inner):
            expected = defined(outer, known)
            assert expected is None or evaluate(expr, values) == expected, (str(expr), values)


def _clamped(formula: Formula | Var | int, var: Var) -> Formula | Var | int:
    if var.lower is not None:
        formula = Formula("max", formula, var.lower)
    return formula if var.upper is None else Formula("min", formula, var.upper)


@many
@given(cases())
def test_printed_text_is_python_with_the_same_value(case: Case) -> None:
    names, (formula,) = case
    expr = build(formula)
    assert expr == build(formula)
    assert str(expr) == str(build(formula))
    code = compile(str(expr), "expr", "eval")
    for values in points(names):
        expected = defined(formula, values)
        if expected is not None:
            assert eval(code, {"min": min, "max": max}, {v.name: value for v, value in values.items()}) == expected


@many
@given(cases())
def test_canonical_forms_are_fixed_points(case: Case) -> None:
    _, (formula,) = case
    expr = build(formula)
    names = {var.name: var for var in VARIABLES}
    try:
        again = eval(str(expr), {"min": minimum, "max": maximum}, names)
    except ZeroDivisionError:  # a quotient of constants in the text is computed by Python
        return
    assert as_expr(again) == expr
    assert map_opaque(expr, lambda opaque: opaque) is expr
    assert next(walk(expr)) is expr


_polynomials = st.recursive(
    st.sampled_from((*VARIABLES[:4], build(Formula("%", VARIABLES[0], 5)), build(Formula("//", VARIABLES[2], 3)))).map(
        as_expr
    )
    | st.integers(-4, 4).map(as_expr),
    lambda parts: st.tuples(st.sampled_from("+-*"), parts, parts),
    max_leaves=8,
)


@many
@given(_polynomials, st.randoms(use_true_random=False))
def test_equal_polynomials_are_the_same_expression(tree: object, random: Random) -> None:
    assert _shuffled(tree, random) == _shuffled(tree, random) == _straight(tree)


def _straight(tree: object) -> Expr:
    match tree:
        case ("+", a, b):
            return _straight(a) + _straight(b)
        case ("-", a, b):
            return _straight(a) - _straight(b)
        case ("*", a, b):
            return _straight(a) * _straight(b)
    assert isinstance(tree, Expr)
    return tree


def _shuffled(tree: object, random: Random) -> Expr:
    """The polynomial multiplied out, its terms and factors taken in random order and grouping."""
    terms = [_grouped([as_expr(sign), *factors], random, "*") for sign, factors in _terms(tree)]
    return _grouped(terms, random, "+")


def _terms(tree: object) -> list[tuple[int, list[Expr]]]:
    match tree:
        case ("+", a, b):
            return [*_terms(a), *_terms(b)]
        case ("-", a, b):
            return [*_terms(a), *((-sign, factors) for sign, factors in _terms(b))]
        case ("*", a, b):
            return [(s * t, [*f, *g]) for s, f in _terms(a) for t, g in _terms(b)]
    assert isinstance(tree, Expr)
    return [(1, [tree])]


def _grouped(parts: list[Expr], random: Random, operation: str) -> Expr:
    parts = parts.copy()
    while len(parts) > 1:
        a, b = (parts.pop(random.randrange(len(parts))) for _ in range(2))
        parts.append(a * b if operation == "*" else a + b)
    return parts[0]


_extents = st.integers(1, 40)


@many
@given(st.dictionaries(st.sampled_from(VARIABLES), st.integers(-40, 40), max_size=4), st.integers(-9, 9), _extents)
def test_an_index_split_and_flattened_is_itself(strides: dict[Var, int], offset: int, columns: int) -> None:
    index = sum([var * stride for var, stride in strides.items()], as_expr(offset))
    assert index // columns * columns + index % columns == index
    assert prove_equal(index - index // columns * columns, index % columns)
    assert prove_less(index % columns, columns)
    assert prove_less_equal(index // columns * columns, index)


@many
@given(st.sampled_from(VARIABLES[:3]), st.integers(-9, 9), _extents, _extents, _extents)
def test_an_index_split_four_ways_and_flattened_is_itself(var: Var, offset: int, a: int, b: int, c: int) -> None:
    index = var + offset
    rows = index // (a * b * c) * a + index // (b * c) % a
    assert (rows * b + index // c % b) * c + index % c == index


@many
@given(_extents, _extents, _extents)
def test_a_flattened_index_splits_into_its_parts(a: int, b: int, c: int) -> None:
    i, j, k = LENGTH, Var("j", 0, b - 1), Var("k", 0, c - 1)
    index = (i * b + j) * c + k
    batched = (i * a + Var("t", 0, a - 1)) * b * c + j * c + k
    parts = [
        (index // (b * c), i),
        (index // c % b, j),
        (index % c, k),
        (index // c, i * b + j),
        (batched // (a * b * c), i),
    ]
    for found, expected in parts:
        assert prove_equal(found, expected)
        assert found == expected or 1 in (a, b, c)  # the index of a loop of one round is 0, but keeps its name
