"""Fields of packed words without shifts: a field is masked where it lies, and what it counts too much divided out.

`f32((w >> 8) & 15)` is `f32(w & 0xf00) * 2**-8`, exactly: a field has few bits, and a power of two scales without
rounding. Fields of one word that lie in one half of it differ in constants alone, so that four of them are one vector
expression, and the factor can move to the other side of a product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..symbolic import Expr, as_expr, as_int
from ..tir import Binary, Bitcast, Cast, Literal, Scalar, Select
from .bits import places, shifted
from .choice import bit_in_place
from .rewrite import rebuild

HALF = 16  # bits of half a word: masks of its fields are no sign bits


@dataclass(frozen=True, slots=True)
class _Field:
    """`bits` bits of a u32 from `shift` on, as an integer less `zero`."""

    word: Scalar
    shift: int
    bits: int
    signed: bool = False
    zero: int = 0


def fields_in_place(node: Scalar) -> Scalar:
    """The expression, with equal values, with every field that is converted to f32 read in place."""
    match node:
        case Cast("f32", operand):
            field = _field(operand)
            if field is not None:
                return _in_place(field)
        case Select(condition, yes, no):
            condition = bit_in_place(condition)
            if isinstance(condition, Literal):
                return fields_in_place(yes if condition.value else no)
            return Select(condition, fields_in_place(yes), fields_in_place(no))
    return rebuild(node, fields_in_place, lambda index: index)


def _field(node: Scalar) -> _Field | None:
    match node:
        case Bitcast("i32", x):
            return _unsigned(x)
        case Binary("sub", x, Literal(zero, "i32")):
            inner = _field(x)
            return None if inner is None or inner.zero else replace(inner, zero=int(zero))
        case Binary("shr", Bitcast("i32", Binary("shl", word, left)), right):
            up, down = places(left), places(right)
            kept = None if down is None else as_int(down)
            if up is None or kept is None or not HALF <= kept < 32:
                return None
            return _placed(word, kept - up, 32 - kept, signed=True)
    return _unsigned(node) if node.dtype == "u32" else None


def _unsigned(node: Scalar) -> _Field | None:
    match node:
        case Binary("and", Binary("shr", word, by), Literal(mask, "u32")):
            shift = places(by)
        case Binary("and", word, Literal(mask, "u32")):
            shift = as_expr(0)
        case _:
            return None
    bits = int(mask).bit_length()
    return _placed(word, shift, bits) if int(mask) == (1 << bits) - 1 else None


def _placed(word: Scalar, shift: Expr | None, bits: int, signed: bool = False) -> _Field | None:
    source = shifted(word, shift)
    if source is None or not 0 < bits <= HALF or not 0 <= source[1] <= 32 - bits:
        return None
    return _Field(*source, bits, signed)


def _in_place(field: _Field) -> Scalar:
    """f32 of a field, as (f32 of the masked half of the word - offset) * 2**-shift."""
    base, shift = field.shift // HALF * HALF, field.shift % HALF
    word = Binary("shr", field.word, Literal(base, "u32")) if base else field.word
    masked: Scalar = Binary("and", word, Literal(((1 << field.bits) - 1) << shift, "u32"))
    offset = field.zero
    if field.signed:
        # Two's complement: flip the sign bit, and count from the least value.
        half = 1 << (field.bits - 1)
        masked = Binary("xor", masked, Literal(half << shift, "u32"))
        offset += half
    # Below the sign bit, and conversion from i32 is the cheaper one.
    value: Scalar = Cast("f32", Bitcast("i32", masked))
    if offset:
        value = Binary("sub", value, Literal(float(offset << shift), "f32"))
    return Binary("mul", value, Literal(2.0**-shift, "f32"))
