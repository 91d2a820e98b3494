"""Writing packed weights, losslessly from GGUF's blocks, and reading them; `formats` describes the layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import WebrelaxError
from .formats import VALUE_BITS, BlockFormat, Stores, packed_words, sections, stored_bits
from .gguf_blocks import BLOCKS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_CHUNK = 1 << 19  # elements repacked at a time: what is made of them on the way stays in the cache


def pack(format: BlockFormat, raw: bytes | memoryview, rows: int, columns: int) -> NDArray[np.uint32]:
    """GGUF block data of a [rows, columns] tensor, repacked: u32 of [packed_words]. A vector is one row."""
    import numpy as np

    words = np.zeros(packed_words(format, rows, columns), "<u4")
    source = np.frombuffer(raw, np.uint8)
    block = BLOCKS[format.name] if format.group else None
    expected = rows * columns // block.elements * block.size if block else rows * columns * format.bits // 8
    if source.size != expected:
        raise WebrelaxError(f"{format.name} data of {rows} x {columns} take {expected} bytes; got {source.size}")
    if block is None:
        words.view(np.uint8)[:expected] = source
        return words
    writer = _Writer(format, words, rows, columns)
    blocks = source.reshape(-1, block.size)
    step = max(1, _CHUNK // block.elements)
    for at in range(0, len(blocks), step):
        writer.add(*block.parts(blocks[at : at + step]))
    return words


def pack_parts(
    format: BlockFormat,
    codes: NDArray[np.uint8],
    values: tuple[NDArray[Any], ...],
    super_values: tuple[NDArray[Any], ...],
    rows: int,
    columns: int,
) -> NDArray[np.uint32]:
    """u32 of [packed_words], from codes, a byte each, and unsigned bits of what groups and super-groups store."""
    import numpy as np

    words = np.zeros(packed_words(format, rows, columns), "<u4")
    _Writer(format, words, rows, columns).add(codes, values, super_values)
    return words


class _Writer:
    """Fills the sections of a packed weight from front to back."""

    def __init__(self, format: BlockFormat, words: NDArray[np.uint32], rows: int, columns: int) -> None:
        import numpy as np

        self._format = format
        self._targets = [words[start:].view(np.uint8) for start in sections(format, rows, columns)]
        self._ends = [0] * len(self._targets)

    def add(
        self, codes: NDArray[np.uint8], values: tuple[NDArray[Any], ...], super_values: tuple[NDArray[Any], ...]
    ) -> None:
        """The next groups."""
        import numpy as np

        parts = [*_planes(self._format, codes), _side_by_side(self._format.stores, values)]
        if self._format.super_group:
            parts.append(_side_by_side(self._format.super_stores, super_values))
        for number, part in enumerate(parts):
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            end = self._ends[number] + data.size
            self._targets[number][self._ends[number] : end] = data
            self._ends[number] = end


def _planes(format: BlockFormat, codes: NDArray[np.uint8]) -> list[NDArray[Any]]:
    """The bytes of each plane."""
    import numpy as np

    parts, shift = [], 0
    for width in format.planes:
        plane = codes
        if width < format.bits:
            plane = codes >> np.uint8(shift) & np.uint8((1 << width) - 1)
        parts.append(_dense(np.ascontiguousarray(plane).reshape(-1), width))
        shift += width
    return parts


def _dense(codes: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Codes of `width` bits, a byte each, side by side: the first in the lowest bits."""
    import numpy as np

    if width == 8:
        return codes
    if width == 1:
        return np.packbits(codes, bitorder="little")
    # The codes of a byte are read as one integer: each moves down to its place, and what is above is cut off.
    together = codes.view({4: "<u2", 2: "<u4"}[width])
    result = together.copy()
    for place in range(1, 8 // width):
        result |= together >> (place * (8 - width))
    return result.astype(np.uint8)


def _side_by_side(stores: Stores, values: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    """What each group stores, as one unsigned integer."""
    import numpy as np

    result = values[0].astype(f"<u{stored_bits(stores) // 8}")
    place = VALUE_BITS[stores[0][1]]
    for (_, type), value in zip(stores[1:], values[1:], strict=True):
        result |= value.astype(result.dtype) << np.array(place, result.dtype)
        place += VALUE_BITS[type]
    return result


def unpack(format: BlockFormat, packed: NDArray[np.uint32], rows: int, columns: int) -> NDArray[np.float32]:
    """The float32 values, [rows, columns], of a packed weight: the definition of what every decode computes."""
    import numpy as np

    words = np.ascontiguousarray(packed, "<u4")
    expected = packed_words(format, rows, columns)
    if words.shape != (expected,):
        raise WebrelaxError(f"{format.name} of {rows} x {columns} packs to {expected} words; got shape {words.shape}")
    size = rows * columns
    starts = sections(format, rows, columns)
    codes = np.zeros(size, np.uint32)
    shift = 0
    for start, width in zip(starts, format.planes, strict=False):
        codes |= _fields(words[start:], width, size) << np.uint32(shift)
        shift += width
    numbers = _numbers(format, codes)
    if not format.group:
        return numbers.reshape(rows, columns)
    groups = size // format.group
    scale, *minimum = _values(format.stores, words[starts[len(format.planes)] :], groups)
    if format.super_group:
        each = format.super_group // format.group
        above = _values(format.super_stores, words[starts[-1] :], groups // each)
        scale = above[0].repeat(each) * scale
        minimum = [-(most.repeat(each) * part) for most, part in zip(above[1:], minimum, strict=True)]
    result = numbers.reshape(groups, -1) * scale[:, None]
    for least in minimum:
        result += least[:, None]
    return result.reshape(rows, columns)


def _fields(words: NDArray[np.uint32], width: int, count: int) -> NDArray[np.uint32]:
    """The first fields of `width` bits."""
    import numpy as np

    shifts = np.arange(0, 32, width, dtype=np.uint32)
    used = words[: -(-count * width // 32), None]
    return (used >> shifts & np.uint32((1 << width) - 1)).reshape(-1)[:count]


def _numbers(format: BlockFormat, codes: NDArray[np.uint32]) -> Floats:
    import numpy as np

    if format.code in ("f32", "bf16", "f16"):
        return _floats(format.code, codes)
    if format.codebook:
        return np.array(format.codebook, np.float32)[codes]
    numbers = codes.astype(np.int32)
    if format.code == "signed":
        sign = 1 << (format.bits - 1)
        numbers = (numbers ^ sign) - sign
    return (numbers - format.zero).astype(np.float32)


def _values(stores: Stores, words: NDArray[np.uint32], count: int) -> list[Floats]:
    """Each of the values that the first groups store."""
    import numpy as np

    together = _fields(words, stored_bits(stores), count)
    values, place = [], 0
    for _, type in stores:
        bits = VALUE_BITS[type]
        values.append(_floats(type, together >> np.uint32(place) & np.uint32((1 << bits) - 1)))
        place += bits
    return values


def _floats(type: str, bits: NDArray[np.uint32]) -> Floats:
    """Numbers of a type as f32, from their bits."""
    import numpy as np

    if type == "f32":
        return bits.view(np.float32)
    if type == "bf16":
        return (bits << np.uint32(16)).view(np.float32)
    if type == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)
    if type == "i8":
        return bits.astype(np.uint8).view(np.int8).astype(np.float32)
    return bits.astype(np.float32)
