"""How far sums over packed words are unrolled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from webrelax.compiler.schedule.contraction import contraction
from webrelax.compiler.schedule.runs import runs
from webrelax.compiler.symbolic import Expr
from webrelax.compiler.tir import Cast, Handle, ProgramBuilder, Scalar, as_scalar

Element = Callable[[Handle, Expr], Scalar]


def bits_at(words: Handle, word: Expr, at: Expr, bits: int) -> Scalar:
    return Cast("f32", (words[word] >> as_scalar(at, "u32")) & ((1 << bits) - 1))


def lengths(length: int, enough: int, *elements: Element) -> tuple[int, int]:
    """The runs of a sum over the product of these elements of one array of words."""
    b = ProgramBuilder("p")
    words = b.input("words", (4096,), "u32")

    def term(i: Expr, k: Expr) -> Scalar:
        product = elements[0](words, k)
        for element in elements[1:]:
            product = product * element(words, k)
        return product * Cast("f32", words[i])

    found = contraction(b.finish(b.reduce("y", (3,), (length,), term)))
    assert found is not None
    return runs(found, found.values, enough)


def codes(bits: int) -> Element:
    each = 32 // bits
    return lambda words, k: bits_at(words, k // each, k % each * bits, bits)


def across(words: Handle, k: Expr) -> Scalar:
    """3 bits, of the first of the words that they lie in."""
    return bits_at(words, k * 3 // 32, k * 3 % 32, 3)


def scale(group: int) -> Element:
    return lambda words, k: Cast("f32", words[k // group + 1000])


@pytest.mark.parametrize(
    ("elements", "enough", "expected"),
    [
        # Nothing repeats: whole vectors.
        ([lambda words, k: Cast("f32", words[k])], 8, (4, 4)),
        # A word at a time, or a part of one where that is enough; a group of one scale outside.
        ([codes(8)], 8, (4, 4)),
        ([codes(4)], 8, (8, 8)),
        ([codes(4), scale(32)], 8, (8, 32)),
        ([codes(4), scale(32)], 4, (4, 32)),
        ([codes(1)], 8, (8, 32)),
        ([codes(1)], 16, (16, 32)),
        ([codes(2), codes(1), scale(32)], 8, (8, 32)),
        # The places of the codes in a word are known only if all 32 are unrolled.
        ([across], 8, (32, 32)),
    ],
)
def test_a_run_is_as_long_as_it_needs_to_be(elements: list[Element], enough: int, expected: tuple[int, int]) -> None:
    assert lengths(256, enough, *elements) == expected


def test_runs_divide_the_sum() -> None:
    assert lengths(6, 8, codes(4)) == (2, 2)
    assert lengths(36, 8, codes(8)) == (4, 4)
    assert lengths(40, 8, codes(4), scale(32)) == (8, 8)
