"""How weights lie in a bundle: one u32 array a matrix, described by the structure of its format.

A weight of [rows, columns] is sections, each starting at a multiple of 256 bytes:

- Codes, row-major, a section for each plane. A code whose bits do not divide a word is split into planes whose bits
  do, low bits first: 6 = 4 + 2. Of a plane of `width` bits, element i of the flat array is in word i // (32 / width),
  at bit (i % (32 / width)) * width from the low end. Rows of formats with groups are whole words.
- Values of groups, in flat order (group g = row * (columns / group) + j // group). What a group stores lies side by
  side, the first in the lowest bits, `size` bits in all: in word g // (32 / size), at bit (g % (32 / size)) * size.
- Values of super-groups, likewise, in formats that have them.

An element is `number * scale + minimum` where there are groups, the number itself otherwise. The number is code - zero,
or the codebook's entry. With super-groups, a group stores integers: scale is the super-group's scale times the group's,
minimum the negative of the super-group's minimum times the group's, each product rounded to f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from ..errors import WebrelaxError

SECTION_WORDS = 64  # 256 bytes: WebGPU's default minStorageBufferOffsetAlignment
VALUE_BITS: Mapping[str, int] = MappingProxyType({"f16": 16, "bf16": 16, "u4": 4, "u8": 8, "i8": 8})
Stores: TypeAlias = tuple[tuple[str, str], ...]
"""(what, type): "scale" or "minimum", and one of VALUE_BITS"""


@dataclass(frozen=True)
class BlockFormat:
    """What a kernel needs to know of a layout; schedules read this and never `name`.

    `bits` is the size of a code, `code` how its bits are read; `zero` is subtracted from an integer code. `group`
    elements of a row share the values that `stores` lists, lowest bits first; 0: no groups. A `codebook` has a signed
    byte for each code. `super_group` elements share the values of `super_stores`; 0: no super-groups.
    """

    name: str
    bits: int
    code: Literal["unsigned", "signed", "f16", "bf16", "f32"]
    zero: int = 0
    group: int = 0
    stores: Stores = ()
    codebook: tuple[int, ...] = ()
    super_group: int = 0
    super_stores: Stores = ()

    @property
    def planes(self) -> tuple[int, ...]:
        """The bits of each plane of the codes, that of the low bits first: powers of two."""
        return tuple(1 << at for at in range(self.bits.bit_length() - 1, -1, -1) if self.bits >> at & 1)

    @property
    def has_minimum(self) -> bool:
        return any(what == "minimum" for what, _ in self.stores)

    @property
    def row_unit(self) -> int:
        """A row is a multiple of so many elements."""
        return self.super_group or self.group or 1


def stored_bits(stores: Stores) -> int:
    """The bits of all that a group stores."""
    return sum(VALUE_BITS[type] for _, type in stores)


def sections(format: BlockFormat, rows: int, columns: int) -> tuple[int, ...]:
    """The word at which each section starts: the planes, then the values of groups and those of super-groups."""
    return _layout(format, rows, columns)[0]


def packed_words(format: BlockFormat, rows: int, columns: int) -> int:
    """The u32 words of a packed weight; the last section is not padded."""
    return _layout(format, rows, columns)[1]


def _layout(format: BlockFormat, rows: int, columns: int) -> tuple[tuple[int, ...], int]:
    """(the start of each section, the end of the last one)."""
    if rows < 1 or columns < 1:
        raise WebrelaxError(f"a weight of {rows} x {columns} is empty; both sizes must be at least 1")
    if columns % format.row_unit:
        raise WebrelaxError(
            f"{format.name} stores groups of {format.row_unit}; a row of {columns} elements is no multiple of that"
        )
    size = rows * columns
    bits = [size * width for width in format.planes]
    if format.group:
        bits.append(size // format.group * stored_bits(format.stores))
    if format.super_group:
        bits.append(size // format.super_group * stored_bits(format.super_stores))
    starts, end = [], 0
    for section in bits:
        starts.append(-(-end // SECTION_WORDS) * SECTION_WORDS)
        end = starts[-1] + -(-section // 32)
    return tuple(starts), end


def _one_level(
    name: str, bits: int, zero: int = 0, *, scale: str = "f16", minimum: bool = False, codebook: tuple[int, ...] = ()
) -> BlockFormat:
    """Groups of 32 with float values."""
    stores = (("scale", scale), ("minimum", "f16")) if minimum else (("scale", scale),)
    return BlockFormat(name, bits, "unsigned", zero, 32, stores, codebook)


def _two_levels(
    name: str, bits: int, zero: int, group: int, *types: str, codebook: tuple[int, ...] = ()
) -> BlockFormat:
    """Super-groups of 256 with f16 values, whose groups have whole numbers: a scale, and a minimum if it has a type."""
    stores = tuple(zip(("scale", "minimum"), types, strict=False))
    above = tuple((what, "f16") for what, _ in stores)
    return BlockFormat(name, bits, "unsigned", zero, group, stores, codebook, 256, above)


# Of ggml: kvalues_iq4nl, and kvalues_mxfp4, whose entries are twice what they stand for.
_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

FORMATS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        one.name: one
        for one in (
            BlockFormat("F32", 32, "f32"),
            BlockFormat("F16", 16, "f16"),
            BlockFormat("BF16", 16, "bf16"),
            BlockFormat("Q8_0", 8, "signed", group=32, stores=(("scale", "f16"),)),
            _one_level("Q4_0", 4, 8),
            _one_level("Q4_1", 4, minimum=True),
            _one_level("Q5_0", 5, 16),
            _one_level("Q5_1", 5, minimum=True),
            _one_level("IQ4_NL", 4, codebook=_NONLINEAR),
            _one_level("MXFP4", 4, codebook=_E2M1, scale="bf16"),
            _two_levels("Q2_K", 2, 0, 16, "u4", "u4"),
            _two_levels("Q3_K", 3, 4, 16, "i8"),
            _two_levels("Q4_K", 4, 0, 32, "u8", "u8"),
            _two_levels("Q5_K", 5, 0, 32, "u8", "u8"),
            _two_levels("Q6_K", 6, 32, 16, "i8"),
            _two_levels("IQ4_XS", 4, 0, 32, "i8", codebook=_NONLINEAR),
        )
    }
)
