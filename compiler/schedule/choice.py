"""Small tables whose index is computed: one load of each entry, and a choice by the bits of the index.

Entries do not depend on the position, so they move out of the loops; what is left of a codebook's decode is a choice
among registers, which any GPU does faster than a load from a place that each thread has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tir import Binary, Bitcast, Compare, Literal, Scalar, Select
from .bits import ZERO, bit_of


def choose(code: Scalar, bits: Sequence[int], entry: Callable[[int], Scalar]) -> Scalar:
    """entry(code), for a code (i32 or u32) whose other bits are zero. `bits` are places, in increasing order."""
    if code.dtype == "i32":
        code = Bitcast("u32", code)

    def below(left: int, value: int) -> Scalar:
        if left == 0:
            return entry(value)
        bit = 1 << bits[left - 1]
        return Select(_is_set(code, bits[left - 1]), below(left - 1, value | bit), below(left - 1, value))

    return below(len(bits), 0)


def bit_in_place(node: Scalar) -> Scalar:
    """A test of one bit, as `choose` makes them, of the word that the bit comes from; a literal where it is known."""
    match node:
        case Compare("ne", Binary("and", word, Literal(mask, "u32")), zero) if zero == ZERO and _is_one_bit(mask):
            source, at = bit_of(word, int(mask).bit_length() - 1)
            if isinstance(source, Literal):
                return Literal(bool(int(source.value) >> at & 1), "bool")
            return _is_set(source, at)
    return node


def _is_set(word: Scalar, at: int) -> Scalar:
    return Compare("ne", Binary("and", word, Literal(1 << at, "u32")), ZERO)


def _is_one_bit(mask: float) -> bool:
    return int(mask).bit_count() == 1
