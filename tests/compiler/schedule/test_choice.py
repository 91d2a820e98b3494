"""Small tables with a computed index: choices among registers, by bits of the words that the index comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webrelax.compiler.schedule.bits import possible_bits
from webrelax.compiler.schedule.choice import choose
from webrelax.compiler.schedule.fields import fields_in_place
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.tir import (
    Bitcast,
    Cast,
    Compare,
    Handle,
    Literal,
    Program,
    ProgramBuilder,
    Scalar,
    as_scalar,
    nodes,
)
from webrelax.compiler.tir.interpreter import run

from .conftest import Array, Check

N = Var("n", 1, 128)
GROUP = 32


# Expressions over words, and what is known of their bits


def codes(words: Handle, i: Expr) -> st.SearchStrategy[Scalar]:
    """Unions, masks and shifts of two words, by constants and by what depends on the loop."""
    leaf = st.sampled_from([words[i, 0], words[i, 1], Literal(0, "u32"), Literal(0b1011, "u32")])
    amounts = st.integers(0, 31) | st.sampled_from([i % 4, i % 4 * 7 + 3, i * 0 + 5, 28 - i % 4 * 2])

    def grown(inner: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
        mask = st.integers(0, 0xFFFFFFFF)
        signed = inner.map(lambda x: Bitcast("i32", x))
        return st.one_of(
            st.builds(lambda x, by: x >> by, inner, amounts),
            st.builds(lambda x, by: x << by, inner, amounts),
            st.builds(lambda x, m: x & m, inner, mask),
            st.builds(lambda x, y: x | y, inner, inner),
            st.builds(lambda x, by: Bitcast("u32", x >> by), signed, amounts),
            st.builds(lambda x, by: Bitcast("u32", x << by), signed, amounts),
        )

    return st.recursive(leaf, grown, max_leaves=6)


def values(make: Callable[[Handle, Expr], Scalar]) -> Array:
    """make(words, i) for 64 pairs of random words."""
    b = ProgramBuilder("p")
    words = b.input("words", (64, 2), "u32")
    program = b.finish(b.compute("y", (64,), lambda i: make(words, i)))
    given = np.random.default_rng(0).integers(0, 1 << 32, (64, 2), dtype=np.uint32)
    (result,) = run(program, [given], {})
    return result


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bit_is_set_that_is_said_to_be_none(data: st.DataObject) -> None:
    found: list[Scalar] = []

    def make(words: Handle, i: Expr) -> Scalar:
        found.append(data.draw(codes(words, i)))
        return found[0]

    assert not np.any(values(make) & np.uint32(~possible_bits(found[0]) & 0xFFFFFFFF))


@settings(max_examples=300, deadline=None)
@given(st.data(), st.lists(st.integers(0, 31), min_size=1, max_size=4, unique=True).map(sorted))
def test_a_choice_by_bits_in_place_is_the_same(data: st.DataObject, bits: list[int]) -> None:
    """Of an index with bits anywhere: a table of its values, before and after the bits are read where they lie."""
    drawn: list[Scalar] = []
    mask = sum(1 << at for at in bits)

    def code(words: Handle, i: Expr) -> Scalar:
        if not drawn:
            drawn.append(data.draw(codes(words, i)))
        return drawn[0] & mask

    def chosen(words: Handle, i: Expr) -> Scalar:
        return choose(code(words, i), bits, lambda value: Literal(value, "u32"))

    expected = values(code)
    np.testing.assert_array_equal(values(chosen), expected)
    np.testing.assert_array_equal(values(lambda words, i: fields_in_place(chosen(words, i))), expected)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 16), st.integers(0, 31), st.sampled_from(["known", "loop"]), st.booleans(), st.integers(0, 7))
def test_a_field_in_place_is_the_same(bits: int, at: int, shift: str, signed: bool, zero: int) -> None:
    """f32 of some bits of a word, at a place that is known, or that the loop shifts on."""
    at = min(at, 32 - bits)
    by_loop = 1 if shift == "loop" and at + bits <= 29 else 0

    def plain(words: Handle, i: Expr) -> Scalar:
        place = i % 4 * by_loop + at
        if signed:
            code = Bitcast("i32", words[i, 0] << as_scalar(32 - bits - place, "u32")) >> (32 - bits)
        else:
            code = Bitcast("i32", (words[i, 0] >> as_scalar(place, "u32")) & ((1 << bits) - 1))
        return Cast("f32", code - zero if zero else code)

    np.testing.assert_array_equal(values(lambda w, i: fields_in_place(plain(w, i))), values(plain))


def test_bits_lie_where_they_came_from() -> None:
    """Of a union of three planes, shifted by a loop's variable and a constant: a test for each plane's own word."""
    b = ProgramBuilder("p")
    words = b.input("words", (3,), "u32")
    w = Var("w", 0, 3)
    parts = [(words[p] >> as_scalar(w * 8 + 5, "u32")) & 1 for p in range(3)]
    code = Bitcast("i32", parts[0] | (parts[1] << 1) | (parts[2] << 2))
    assert possible_bits(code) == 0b111
    chosen = fields_in_place(choose(code, [0, 1, 2], lambda value: Literal(float(value), "f32")))
    tests = {node for node in nodes(chosen) if isinstance(node, Compare)}
    shifted = [words[p] >> as_scalar(w * 8, "u32") for p in range(3)]
    assert tests == {Compare("ne", word & (1 << 5), Literal(0, "u32")) for word in shifted}


# In kernels


Code = Callable[[Expr, Expr], Scalar]


def planes(b: ProgramBuilder, rows: int, columns: int, bits: int) -> Code:
    """Word p of a group of 32 codes holds bit p of each."""
    words = b.input("words", (rows, columns // GROUP, bits), "u32")
    return lambda r, k: union([(words[r, k // GROUP, p] >> as_scalar(k % GROUP, "u32")) & 1 for p in range(bits)])


def fields(b: ProgramBuilder, rows: int, columns: int, bits: int) -> Code:
    """A word holds whole codes beside each other."""
    each = 32 // bits
    words = b.input("words", (rows, columns // each), "u32")
    return lambda r, k: (words[r, k // each] >> as_scalar(k % each * bits, "u32")) & ((1 << bits) - 1)


def row(b: ProgramBuilder, rows: int, columns: int, bits: int) -> Code:
    """A row's codes follow each other across the edges of words."""
    words = b.input("words", (rows, columns * bits // 32 + 1), "u32")

    def code(r: Expr, k: Expr) -> Scalar:
        word, at = k * bits // 32, k * bits % 32
        low = words[r, word] >> as_scalar(at, "u32")
        high = (words[r, word + 1] << as_scalar(31 - at, "u32")) << 1
        return (low | high) & ((1 << bits) - 1)

    return code


Layout = Callable[[ProgramBuilder, int, int, int], Code]


def union(bits: list[Scalar]) -> Scalar:
    code = bits[0]
    for at, bit in enumerate(bits[1:], 1):
        code = code | (bit << at)
    return code


def product(n: Expr | int, rows: int, columns: int, bits: int, layout: Layout) -> Program:
    """x times the transpose of a weight whose codes index a table, with a scale a group."""
    b = ProgramBuilder("product")
    x, table = b.input("x", (n, columns), "f32"), b.input("table", (1 << bits,), "f32")
    scales, code = b.input("scales", (rows, columns // GROUP), "f32"), layout(b, rows, columns, bits)
    codes = b.compute("codes", (rows, columns), lambda r, k: Bitcast("i32", code(r, k)))
    w = b.compute("w", (rows, columns), lambda r, k: table[codes[r, k]] * scales[r, k // GROUP])
    return b.finish(b.reduce("y", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k]))


def random_words(program: Program) -> dict[str, Callable[[Any], Array]]:
    """All 32 bits of the packed words."""
    shape = [int(str(e)) for e in program.buffer("words").shape]
    return {"words": lambda _: np.random.default_rng(3).integers(0, 1 << 32, shape, dtype=np.uint32)}


def loads_in_loops(text: str, name: str) -> int:
    return text[text.index("for (") :].count(f"{name}[")


@pytest.mark.parametrize(("layout", "bits"), [*((planes, bits) for bits in (1, 2, 3, 4)), (fields, 2), (fields, 4)])
@pytest.mark.parametrize(("n", "rule"), [(1, "dots"), (N, "gemm")])
def test_the_table_is_in_registers(check: Check, n: Expr | int, rule: str, layout: Layout, bits: int) -> None:
    program = product(n, 70, 160, bits, layout)
    sizes = [[]] if n == 1 else [[1], [33]]
    source = check(program, sizes, random_words(program), rule=rule)
    assert loads_in_loops(source.text, "table") == 0
    assert "select(" in source.text


@pytest.mark.parametrize(("n", "rule"), [(1, "dots"), (N, "gemm")])
def test_codes_across_words(check: Check, n: Expr | int, rule: str) -> None:
    """Nothing repeats before 32 positions: all of them are unrolled, and every bit is known to be in one word."""
    program = product(n, 70, 160, 3, row)
    sizes = [[]] if n == 1 else [[1], [33]]
    source = check(program, sizes, random_words(program), rule=rule, most_bytes=64 << 10)
    assert loads_in_loops(source.text, "table") == 0
    assert "<<" not in source.text


@pytest.mark.parametrize("n", [1, N])
def test_a_large_table_stays_in_memory(check: Check, n: Expr | int) -> None:
    program = product(n, 20, 64, 5, planes)
    source = check(program, [[]] if n == 1 else [[9]], random_words(program))
    assert loads_in_loops(source.text, "table") == 1


def test_what_holds_the_table_does_not_matter(check: Check) -> None:
    """Entries of four halves in two words, read by the word."""
    b = ProgramBuilder("halves")
    x, words, table = b.input("x", (1, 64), "f32"), b.input("words", (9, 4), "u32"), b.input("table", (2,), "u32")
    codes = b.compute("codes", (9, 64), lambda r, k: Bitcast("i32", (words[r, k // 16] >> (k % 16 * 2)) & 1))
    w = b.compute("w", (9, 64), lambda r, k: Cast("f32", table[codes[r, k]] >> 30))
    program = b.finish(b.reduce("y", (1, 9), (64,), lambda i, o, k: x[i, k] * w[o, k]))
    source = check(program, given=random_words(program), rule="dots")
    assert loads_in_loops(source.text, "table") == 0


def test_an_index_that_is_loaded_as_it_is_stays_a_gather(check: Check) -> None:
    b = ProgramBuilder("gather")
    x, ids, table = b.input("x", (1, 32), "f32"), b.input("ids", (8,), "i32"), b.input("table", (4, 32), "f32")
    program = b.finish(b.reduce("y", (1, 8), (32,), lambda i, o, k: x[i, k] * table[ids[o], k]))
    source = check(program, given={"ids": lambda _: np.arange(8, dtype=np.int32) % 4})
    assert "select(" not in source.text
