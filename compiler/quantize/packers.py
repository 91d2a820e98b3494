"""How weights lie in a bundle: one u32 array a matrix, repacked losslessly from GGUF's blocks.

A weight of [rows, columns] is one or two sections, each starting at a multiple of 256 bytes:

0. Codes, row-major: element i of the flat array in word i // (32 / bits), at bit (i % (32 / bits)) * bits from the low
   end. Rows of formats with groups are whole words, so this is also element j of a row in word j // (32 / bits) of it.
1. Group values, in flat order (group g = row * (columns / group) + j // group). "pair": the f16 scale of group g is in
   word g // 2, in the low half for an even g. "with_minimum": word g holds the scale (low half) and the minimum (high).

An element is `(code - zero) * scale + minimum` where there are groups, the code itself otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ..errors import WebrelaxError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SECTION_WORDS = 64  # 256 bytes: WebGPU's default minStorageBufferOffsetAlignment


@dataclass(frozen=True)
class BlockFormat:
    """What a kernel needs to know of a layout; schedules read this and never `name`.

    `bits` is the size of a code, `code` how its bits are read; `zero` is subtracted from an integer code. `group`
    elements of a row share the values that `stores` lists as (what, type), lowest bits first; 0: no groups.
    """

    name: str
    bits: int
    code: Literal["unsigned", "signed", "f16", "bf16", "f32"]
    zero: int = 0
    group: int = 0
    stores: tuple[tuple[str, str], ...] = ()

    @property
    def codes_per_word(self) -> int:
        return 32 // self.bits

    @property
    def has_minimum(self) -> bool:
        return any(what == "minimum" for what, _ in self.stores)

    @property
    def group_packing(self) -> Literal["none", "pair", "with_minimum"]:
        """How section 1 is packed, see above."""
        if not self.group:
            return "none"
        return "with_minimum" if self.has_minimum else "pair"


_SCALE, _MINIMUM = ("scale", "f16"), ("minimum", "f16")
FORMATS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        one.name: one
        for one in (
            BlockFormat("F32", 32, "f32"),
            BlockFormat("F16", 16, "f16"),
            BlockFormat("BF16", 16, "bf16"),
            BlockFormat("Q8_0", 8, "signed", group=32, stores=(_SCALE,)),
            BlockFormat("Q4_0", 4, "unsigned", zero=8, group=32, stores=(_SCALE,)),
            BlockFormat("Q4_1", 4, "unsigned", group=32, stores=(_SCALE, _MINIMUM)),
        )
    }
)


def sections(format: BlockFormat, rows: int, columns: int) -> tuple[int, ...]:
    """The word at which each section starts: (0,) without groups, (0, start of the group values) with."""
    codes = _code_words(format, rows, columns)
    return (0, -(-codes // SECTION_WORDS) * SECTION_WORDS) if format.group else (0,)


def packed_words(format: BlockFormat, rows: int, columns: int) -> int:
    """The u32 words of a packed weight; the last section is not padded."""
    if not format.group:
        return _code_words(format, rows, columns)
    return sections(format, rows, columns)[1] + _group_words(format, rows, columns)


def pack(format: BlockFormat, raw: bytes | memoryview, rows: int, columns: int) -> NDArray[np.uint32]:
    """GGUF block data of a [rows, columns] tensor, repacked: u32 of [packed_words]. A vector is one row."""
    import numpy as np

    words = np.zeros(packed_words(format, rows, columns), "<u4")
    source = np.frombuffer(raw, np.uint8)
    expected = _raw_bytes(format, rows, columns)
    if source.size != expected:
        raise WebrelaxError(f"{format.name} data of {rows} x {columns} take {expected} bytes; got {source.size}")
    if not format.group:
        words.view(np.uint8)[:expected] = source
        return words
    # Every grouped format of GGUF is blocks of one group: its f16 values, then its codes.
    value_bytes = 2 * len(format.stores)
    blocks = source.reshape(-1, value_bytes + format.group * format.bits // 8)
    codes = blocks[:, value_bytes:]
    if format.bits == 4:
        codes = _sequential_nibbles(codes)
    code_bytes = words.view(np.uint8)[: codes.size]
    code_bytes.reshape(codes.shape)[...] = codes
    values = words[sections(format, rows, columns)[1] :].view(np.uint8)[: len(blocks) * value_bytes]
    values.reshape(-1, value_bytes)[...] = blocks[:, :value_bytes]
    return words


def unpack(format: BlockFormat, packed: NDArray[np.uint32], rows: int, columns: int) -> NDArray[np.float32]:
    """The float32 values, [rows, columns], of a packed weight: the definition of what every decode computes."""
    import numpy as np

    words = np.ascontiguousarray(packed, "<u4")
    expected = packed_words(format, rows, columns)
    if words.shape != (expected,):
        raise WebrelaxError(f"{format.name} of {rows} x {columns} packs to {expected} words; got shape {words.shape}")
    size = rows * columns
    shifts = np.arange(0, 32, format.bits, dtype=np.uint32)
    mask = np.uint32((1 << format.bits) - 1)
    codes = (words[: _code_words(format, rows, columns), None] >> shifts & mask).reshape(-1)[:size]
    if format.code in ("f32", "bf16"):
        return (codes << np.uint32(32 - format.bits)).view(np.float32).reshape(rows, columns)
    if format.code == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float32).reshape(rows, columns)
    numbers = codes.astype(np.int32)
    if format.code == "signed":
        sign = 1 << (format.bits - 1)
        numbers = (numbers ^ sign) - sign
    grouped = (numbers - format.zero).astype(np.float32).reshape(-1, format.group)
    halves = words[sections(format, rows, columns)[1] :].view("<f2").astype(np.float32)
    values = halves[: len(grouped) * len(format.stores)].reshape(len(grouped), -1)
    result = grouped * values[:, :1]
    if format.has_minimum:
        result += values[:, 1:]
    return result.reshape(rows, columns)


def _code_words(format: BlockFormat, rows: int, columns: int) -> int:
    if rows < 1 or columns < 1:
        raise WebrelaxError(f"a weight of {rows} x {columns} is empty; both sizes must be at least 1")
    if format.group and columns % format.group:
        raise WebrelaxError(
            f"{format.name} stores groups of {format.group}; a row of {columns} elements is no multiple of that"
        )
    return -(-rows * columns // format.codes_per_word)


def _group_words(format: BlockFormat, rows: int, columns: int) -> int:
    groups = rows * columns // format.group
    return -(-groups * len(format.stores) // 2)


def _raw_bytes(format: BlockFormat, rows: int, columns: int) -> int:
    """Bytes of the GGUF block data."""
    code_bytes = rows * columns * format.bits // 8
    return code_bytes + (rows * columns // format.group * 2 * len(format.stores) if format.group else 0)


def _sequential_nibbles(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[blocks, 16] bytes in GGUF's order (byte j: element j low, element j + 16 high) to elements in sequence."""
    import numpy as np

    half = codes.shape[1] // 2
    sequential = np.empty_like(codes, order="C")
    sequential[:, :half] = (codes[:, 0::2] & 0x0F) | (codes[:, 1::2] << 4)
    sequential[:, half:] = (codes[:, 0::2] >> 4) | (codes[:, 1::2] & 0xF0)
    return sequential
