"""Small tables whose index is computed: one load of each entry, and a choice by the bits of the index.

Entries do not depend on the position, so they move out of the loops; what is left of a codebook's decode is a choice
among registers, which any GPU does faster than a load from a place that each thread has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tir import Binary, Bitcast, Cast, Compare, Index, Literal, Scalar, Select

WORD = 0xFFFFFFFF


def possible_bits(node: Scalar) -> int:
    """A mask that holds every bit which an i32 or u32 may have set."""
    match node:
        case Literal(value):
            return int(value) & WORD
        case Binary("and", a, b):
            return possible_bits(a) & possible_bits(b)
        case Binary("or" | "xor", a, b):
            return possible_bits(a) | possible_bits(b)
        case Bitcast("i32" | "u32", x):
            return possible_bits(x) if x.dtype in ("i32", "u32") else WORD
        case Cast("i32" | "u32", x) if x.dtype in ("i32", "u32"):
            return possible_bits(x)
    return WORD


def choose(code: Scalar, bits: Sequence[int], entry: Callable[[int], Scalar]) -> Scalar:
    """entry(code), for a code (i32 or u32) whose other bits are zero. `bits` are places, in increasing order."""
    if code.dtype == "i32":
        code = code.operand if isinstance(code, Bitcast) and code.operand.dtype == "u32" else Bitcast("u32", code)

    def below(left: int, value: int) -> Scalar:
        if left == 0:
            return entry(value)
        bit = 1 << bits[left - 1]
        is_set = Compare("ne", Binary("and", code, Literal(bit, "u32")), Literal(0, "u32"))
        return Select(is_set, below(left - 1, value | bit), below(left - 1, value))

    return below(len(bits), 0)


def bit_in_place(node: Scalar) -> Scalar:
    """A test of one bit, as `choose` makes them, of the word that the bit comes from; a literal where it is known."""
    match node:
        case Compare("ne", Binary("and", word, Literal(mask, "u32")), Literal(0)) if int(mask).bit_count() == 1:
            source = _source(word, int(mask).bit_length() - 1)
            if source is None:
                return node
            word, at = source
            if isinstance(word, Literal):
                return Literal(bool(int(word.value) >> at & 1), "bool")
            return Compare("ne", Binary("and", word, Literal(1 << at, "u32")), Literal(0, "u32"))
    return node


def _source(node: Scalar, at: int) -> tuple[Scalar, int] | None:
    """(word, place): where a bit of a u32 comes from, through shifts, masks and unions; None where that is unknown."""
    zero = Literal(0, "u32"), 0
    match node:
        case Binary("shr", x, by):
            shift = constant(by)
            return None if shift is None else _source(x, at + shift) if at + shift < 32 else zero
        case Binary("shl", x, by):
            shift = constant(by)
            return None if shift is None else _source(x, at - shift) if at >= shift else zero
        case Binary("and", x, Literal(mask)):
            return _source(x, at) if int(mask) >> at & 1 else zero
        case Binary("or", x, y):
            a, b = _source(x, at), _source(y, at)
            return b if a == zero else a if b in (zero, a) else None
        case Bitcast("u32", x) if x.dtype == "i32":
            return _source(x, at)
        case Bitcast("i32", x) if x.dtype == "u32":
            return _source(x, at)
    return node, at


def constant(node: Scalar) -> int | None:
    """The value of an integer that is known."""
    match node:
        case Literal(value):
            return int(value)
        case Index(expr):
            from ..symbolic import as_int

            return as_int(expr)
        case Cast("u32", x):
            return constant(x)
        case Binary("sub", a, b):
            left, right = constant(a), constant(b)
            return None if left is None or right is None else left - right
    return None
