"""Decoding a packed weight, as an ordinary tensor program: analysis and fusion know nothing of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..ir import Annotation, Operator, Tensor, is_subsumed
from ..symbolic import Expr
from ..tir import Bitcast, Cast, Handle, Program, ProgramBuilder, Scalar, as_scalar, half
from .packers import BlockFormat, packed_words, sections


def decode_program(format: BlockFormat, rows: int, columns: int) -> Program:
    """u32[packed_words] -> f32[rows, columns], the values of `unpack` bit for bit."""
    b = ProgramBuilder("dequantize")
    words = b.input("w", (packed_words(format, rows, columns),), "u32")
    element = decoder(format, rows, columns, words)
    return b.finish(b.compute("values", (rows, columns), element))


def decoder(format: BlockFormat, rows: int, columns: int, words: Handle) -> Callable[[Expr, Expr], Scalar]:
    """The element (row, column) of a packed weight, as an expression."""

    def element(r: Expr, k: Expr) -> Scalar:
        value = code_at(format, words, r * columns + k, format.zero)
        if not format.group:
            return value
        scale, minimum = group_values(format, rows, columns, words, r, k // format.group)
        return value * scale if minimum is None else value * scale + minimum

    return element


def group_values(
    format: BlockFormat, rows: int, columns: int, words: Handle, row: Expr, group: Expr
) -> tuple[Scalar, Scalar | None]:
    """The scale and the minimum, if there is one, of a group of a row."""
    at = row * (columns // format.group) + group
    start = sections(format, rows, columns)[1]
    if format.has_minimum:
        pair = words[start + at]
        return half(pair), half(pair >> 16)
    return half(words[start + at // 2] >> _u32(at % 2 * 16)), None


def _u32(expr: Expr) -> Scalar:
    return as_scalar(expr, "u32")


def code_at(format: BlockFormat, words: Handle, at: Expr, zero: int) -> Scalar:
    """The code of the element with this flat number, less `zero`, as f32."""
    word = words[at // format.codes_per_word]
    shift = at % format.codes_per_word * format.bits
    if format.code == "f32":
        return Bitcast("f32", word)
    if format.code == "bf16":
        return Bitcast("f32", (word >> _u32(shift)) << 16)
    if format.code == "f16":
        return half(word >> _u32(shift))
    if format.code == "signed":
        top = Bitcast("i32", word << _u32(32 - format.bits - shift))
        return Cast("f32", (top >> (32 - format.bits)) - zero if zero else top >> (32 - format.bits))
    code = Bitcast("i32", (word >> _u32(shift)) & ((1 << format.bits) - 1))
    return Cast("f32", code - zero if zero else code)


def _deduce(arguments: tuple[Annotation, ...], attributes: Mapping[str, Any]) -> Annotation:
    format, rows, columns = attributes["format"], attributes["rows"], attributes["columns"]
    expected = Tensor((packed_words(format, rows, columns),), "u32")
    if len(arguments) != 1 or not is_subsumed(expected, arguments[0]):
        raise ValueError(f"a packed [{rows}, {columns}] weight is {expected}, not {', '.join(map(str, arguments))}")
    return Tensor((rows, columns), "f32")


def _lower(_: tuple[Annotation, ...], attributes: Mapping[str, Any]) -> Program:
    return decode_program(attributes["format"], attributes["rows"], attributes["columns"])


dequantize = Operator("dequantize", _deduce, _lower)
