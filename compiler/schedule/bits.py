"""What is known of the bits of integers: which may be set, and which word they come from."""

from __future__ import annotations

from ..symbolic import Add, Const, Expr, as_expr, as_int, lower_bound
from ..tir import Binary, Bitcast, Cast, Index, Literal, Scalar

WORD = 0xFFFFFFFF
ZERO = Literal(0, "u32")


def possible_bits(node: Scalar) -> int:
    """A mask that holds every bit which an i32 or u32 may have set."""
    match node:
        case Literal(value):
            return int(value) & WORD
        case Binary("and", a, b):
            return possible_bits(a) & possible_bits(b)
        case Binary("or" | "xor", a, b):
            return possible_bits(a) | possible_bits(b)
        case Binary("shl" | "shr" as op, a, by) if a.dtype == "u32":
            number = places(by)
            known = None if number is None else as_int(number)
            if known is not None:
                return possible_bits(a) << known & WORD if op == "shl" else possible_bits(a) >> known
        case Bitcast("i32" | "u32", x) | Cast("i32" | "u32", x) if x.dtype in ("i32", "u32"):
            return possible_bits(x)
    return WORD


def places(by: Scalar) -> Expr | None:
    """The number of places of a shift as an index, None where it is computed otherwise."""
    match by:
        case Literal(value):
            return as_expr(int(value))
        case Index(expr):
            return expr
        case Cast("u32", x):
            return places(x)
    return None


def shifted(word: Scalar, by: Expr | None) -> tuple[Scalar, int] | None:
    """(another word, place) of the bit that `word >> by` has at place 0.

    The other word is shifted by what is not constant, which neighbours have in common. None where that is not known.
    """
    if by is None:
        return None
    constant = sum(part.value for part in (by.terms if isinstance(by, Add) else (by,)) if isinstance(part, Const))
    rest = by - constant
    if rest == 0:
        return word, constant
    least = lower_bound(rest)
    if constant < 0 or least is None or least < 0:
        return None
    return Binary("shr", word, Cast("u32", Index(rest))), constant


def bit_of(node: Scalar, at: int) -> tuple[Scalar, int]:
    """(u32, place) of the bit that an integer has at a place: through shifts, masks, and unions with zero.

    A bit that is known is one of a literal.
    """
    match node:
        case Literal(value):
            return Literal(int(value) >> at & 1, "u32"), 0
        case Binary("shr", x, by) if x.dtype == "u32":
            source = shifted(x, places(by))
            if source is not None:
                word, place = source
                return (ZERO, 0) if at + place >= 32 else bit_of(word, at + place) if word is x else (word, at + place)
        case Binary("shl", x, by):
            number = places(by)
            known = None if number is None else as_int(number)
            if known is not None:
                return bit_of(x, at - known) if at >= known else (ZERO, 0)
        case Binary("and", x, Literal(mask)):
            return bit_of(x, at) if int(mask) >> at & 1 else (ZERO, 0)
        case Binary("or", x, y):
            a, b = bit_of(x, at), bit_of(y, at)
            if (ZERO, 0) in (a, b):
                return b if a == (ZERO, 0) else a
        case Bitcast("i32" | "u32", x) if x.dtype in ("i32", "u32"):
            return bit_of(x, at)
    return node if node.dtype == "u32" else Bitcast("u32", node), at
