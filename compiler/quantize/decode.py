"""Decoding a packed weight, as an ordinary tensor program: analysis and fusion know nothing of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir import Annotation, Operator, Tensor, is_subsumed
from ..symbolic import Expr
from ..tir import (
    Bitcast,
    Cast,
    Compare,
    Handle,
    Literal,
    Program,
    ProgramBuilder,
    Scalar,
    Select,
    as_scalar,
    half,
)
from .formats import VALUE_BITS, BlockFormat, Stores, packed_words, sections, stored_bits


def decode_program(format: BlockFormat, rows: int, columns: int) -> Program:
    """u32[packed_words] -> f32[rows, columns], the values of `unpack` bit for bit."""
    b = ProgramBuilder("dequantize")
    words = b.input("w", (packed_words(format, rows, columns),), "u32")
    element = decoder(format, rows, columns, words)
    return b.finish(b.compute("values", (rows, columns), element))


def decoder(format: BlockFormat, rows: int, columns: int, words: Handle) -> Callable[[Expr, Expr], Scalar]:
    """The element (row, column) of a packed weight, as an expression."""
    starts = sections(format, rows, columns)

    def element(r: Expr, k: Expr) -> Scalar:
        value = code_at(format, words, r * columns + k, format.zero, starts)
        if not format.group:
            return value
        scale, minimum = group_values(format, rows, columns, words, r, k // format.group)
        return value * scale if minimum is None else value * scale + minimum

    return element


def group_values(
    format: BlockFormat, rows: int, columns: int, words: Handle, row: Expr, group: Expr
) -> tuple[Scalar, Scalar | None]:
    """The scale and the minimum, if there is one, of a group of a row."""
    starts = sections(format, rows, columns)
    at = row * (columns // format.group) + group
    scale, minimum = _values(format.stores, words, starts[len(format.planes)], at)
    if not format.super_group:
        return scale, minimum
    above = row * (columns // format.super_group) + group // (format.super_group // format.group)
    most_scale, most_minimum = _values(format.super_stores, words, starts[-1], above)
    if minimum is None or most_minimum is None:
        return most_scale * scale, None
    return most_scale * scale, -(most_minimum * minimum)


def _values(stores: Stores, words: Handle, start: int, at: Expr) -> tuple[Scalar, Scalar | None]:
    """The scale and the minimum, if there is one, that a group or super-group stores."""
    size = stored_bits(stores)
    each = 32 // size
    word = words[start + at // each] if each > 1 else words[start + at]
    place = at % each * size if each > 1 else None
    values, before = [], 0
    for _, type in stores:
        shift = before if place is None else place + before
        values.append(_stored(type, word, shift))
        before += VALUE_BITS[type]
    return values[0], values[1] if len(values) > 1 else None


def _stored(type: str, word: Scalar, shift: Expr | int) -> Scalar:
    """The number of a type that has its lowest bit at a place of a word, as f32."""
    match type:
        case "f32":
            return Bitcast("f32", word)
        case "bf16":
            return Bitcast("f32", _moved(word, shift) << 16)
        case "f16":
            return half(_moved(word, shift))
        case "i8":
            return Cast("f32", _signed(word, 8, shift))
    return Cast("f32", _unsigned(word, VALUE_BITS[type], shift))


def _moved(word: Scalar, shift: Expr | int) -> Scalar:
    if isinstance(shift, int):
        return word >> shift if shift else word
    return word >> _u32(shift)


def _unsigned(word: Scalar, bits: int, shift: Expr | int) -> Scalar:
    """The field of `bits` bits at a place of a word, as an i32."""
    return Bitcast("i32", _moved(word, shift) & ((1 << bits) - 1))


def _signed(word: Scalar, bits: int, shift: Expr | int) -> Scalar:
    """Such a field in two's complement."""
    left = 32 - bits - shift
    return Bitcast("i32", word << (left if isinstance(left, int) else _u32(left))) >> (32 - bits)


def _u32(expr: Expr) -> Scalar:
    return as_scalar(expr, "u32")


def code_at(format: BlockFormat, words: Handle, at: Expr, zero: int, starts: tuple[int, ...] = (0,)) -> Scalar:
    """The number that the code of the element with this flat number stands for, less `zero`, as f32.

    `starts` has the word where each plane starts.
    """
    fields = [
        (words[start + at // (32 // width)], width, at % (32 // width) * width)
        for start, width in zip(starts, format.planes, strict=False)
    ]
    if format.code in ("f32", "bf16", "f16"):
        ((word, _, shift),) = fields
        return _stored(format.code, word, shift)
    if format.codebook:
        return _less(_entry(format.codebook, fields), zero)
    whole = [_unsigned(*field) for field in fields]
    if format.code == "signed":
        whole[-1] = _signed(*fields[-1])
    if len(whole) == 1:
        return _less(whole[0], zero)
    # The planes are added as floats, exactly: kernels read the field of a word as a float without a shift.
    code: Scalar = Cast("f32", whole[0])
    place = format.planes[0]
    for part, width in zip(whole[1:], format.planes[1:], strict=True):
        code += Cast("f32", part) * float(1 << place)
        place += width
    return code - float(zero) if zero else code


def _less(code: Scalar, zero: int) -> Scalar:
    return Cast("f32", code - zero if zero else code)


def _entry(codebook: tuple[int, ...], fields: Sequence[tuple[Scalar, int, Expr]]) -> Scalar:
    """The entry of a table of signed bytes: four lie in a word, and the upper bits of the code choose the word.

    The first entry is in the top byte, so that the entry moves there by its number.
    """
    code: Scalar = Literal(0, "u32")
    place = 0
    for number, (word, width, shift) in enumerate(fields):
        part = _moved(word, shift) & ((1 << width) - 1)
        code = code | part << place if number else part
        place += width
    packed = [
        sum((number & 255) << 24 - 8 * at for at, number in enumerate(codebook[i : i + 4]))
        for i in range(0, len(codebook), 4)
    ]
    words: list[Scalar] = [Literal(word, "u32") for word in packed]
    bit = 4
    while len(words) > 1:
        chosen = Compare("ne", code & bit, Literal(0, "u32"))
        words = [Select(chosen, words[i + 1], words[i]) for i in range(0, len(words), 2)]
        bit *= 2
    return Bitcast("i32", words[0] << (code & 3) * 8) >> 24


def _deduce(arguments: tuple[Annotation, ...], attributes: Mapping[str, Any]) -> Annotation:
    format, rows, columns = attributes["format"], attributes["rows"], attributes["columns"]
    expected = Tensor((packed_words(format, rows, columns),), "u32")
    if len(arguments) != 1 or not is_subsumed(expected, arguments[0]):
        raise ValueError(f"a packed [{rows}, {columns}] weight is {expected}, not {', '.join(map(str, arguments))}")
    return Tensor((rows, columns), "f32")


def _lower(_: tuple[Annotation, ...], attributes: Mapping[str, Any]) -> Program:
    return decode_program(attributes["format"], attributes["rows"], attributes["columns"])


dequantize = Operator("dequantize", _deduce, _lower)
