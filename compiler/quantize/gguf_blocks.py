"""The blocks of GGUF's tensor types, taken apart: codes, and the values of groups and super-groups as they are stored.

The structures are those of ggml-common.h (https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]
    Values: TypeAlias = tuple[NDArray[Any], ...]


class Parts(NamedTuple):
    """Of [blocks]: codes u8[blocks, elements], and the bits of each value as unsigned integers [blocks, groups]."""

    codes: Bytes
    values: Values
    super_values: Values = ()


class Block(NamedTuple):
    """A block of `elements` takes `size` bytes; `parts` takes u8[blocks, size] apart."""

    elements: int
    size: int
    parts: Callable[[Bytes], Parts]


def _halves(blocks: Bytes, at: int, count: int = 1) -> Values:
    """So many numbers of 16 bits, [blocks, 1] each."""
    return tuple(blocks[:, i : i + 2].copy().view("<u2") for i in range(at, at + 2 * count, 2))


def _fields(data: Bytes, bits: int, run: int) -> Bytes:
    """Fields of bytes in the order of elements: of `run` bytes the lowest fields, then the next ones."""
    import numpy as np

    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = data.reshape(len(data), -1, 1, run) >> shifts
    fields &= np.uint8((1 << bits) - 1)
    return fields.reshape(len(data), -1)


def _joined(low: Bytes, high: Bytes, place: int) -> Bytes:
    """Codes whose upper bits lie apart; they go to this place."""
    high <<= place
    high |= low
    return high


def _whole_bytes(blocks: Bytes) -> Parts:
    return Parts(blocks[:, 2:], _halves(blocks, 0))


def _nibbles(blocks: Bytes, values: int) -> Parts:
    return Parts(_fields(blocks[:, 2 * values :], 4, 16), _halves(blocks, 0, values))


def _nibbles_and_bits(blocks: Bytes, values: int) -> Parts:
    high, low = blocks[:, 2 * values : 2 * values + 4], blocks[:, 2 * values + 4 :]
    return Parts(_joined(_fields(low, 4, 16), _fields(high, 1, 1), 4), _halves(blocks, 0, values))


def _power_scale(blocks: Bytes) -> Parts:
    """A scale e stands for half of 2**(e - 127), which bf16 holds: the least two are subnormal."""
    import numpy as np

    e = blocks[:, :1].astype(np.uint16)
    scale = np.where(e < 2, np.uint16(0x20) << e, (e - np.uint16(1)) << 7).astype(np.uint16)
    return Parts(_fields(blocks[:, 1:], 4, 16), (scale,))


def _q2_k(blocks: Bytes) -> Parts:
    both = blocks[:, :16]
    return Parts(_fields(blocks[:, 16:80], 2, 32), (both & 15, both >> 4), _halves(blocks, 80, 2))


def _q3_k(blocks: Bytes) -> Parts:
    high, low, packed = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    codes = _joined(_fields(low, 2, 32), _fields(high, 1, 32), 2)
    scales = _joined(_fields(packed[:, :8], 4, 8), _fields(packed[:, 8:], 2, 4), 4) - 32  # wraps: the bits of an i8
    return Parts(codes, (scales,), _halves(blocks, 108))


def _scales_and_minima(packed: Bytes) -> Values:
    """Eight scales and eight minima of 6 bits, in 12 bytes."""
    import numpy as np

    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, low & 15 | first >> 2 & 48], axis=1)
    minima = np.concatenate([second & 63, low >> 4 | second >> 2 & 48], axis=1)
    return scales, minima


def _q4_k(blocks: Bytes) -> Parts:
    return Parts(_fields(blocks[:, 16:], 4, 32), _scales_and_minima(blocks[:, 4:16]), _halves(blocks, 0, 2))


def _q5_k(blocks: Bytes) -> Parts:
    codes = _joined(_fields(blocks[:, 48:], 4, 32), _fields(blocks[:, 16:48], 1, 32), 4)
    return Parts(codes, _scales_and_minima(blocks[:, 4:16]), _halves(blocks, 0, 2))


def _q6_k(blocks: Bytes) -> Parts:
    codes = _joined(_fields(blocks[:, :128], 4, 64), _fields(blocks[:, 128:192], 2, 32), 4)
    return Parts(codes, (blocks[:, 192:208],), _halves(blocks, 208))


def _iq4_xs(blocks: Bytes) -> Parts:
    high, low = blocks[:, 2:4], blocks[:, 4:8]
    scales = _joined(_fields(low, 4, 1), _fields(high, 2, 1), 4) - 32  # wraps: the bits of an i8
    return Parts(_fields(blocks[:, 8:], 4, 16), (scales,), _halves(blocks, 0))


BLOCKS: Mapping[str, Block] = MappingProxyType(
    {
        "Q8_0": Block(32, 34, _whole_bytes),
        "Q4_0": Block(32, 18, partial(_nibbles, values=1)),
        "Q4_1": Block(32, 20, partial(_nibbles, values=2)),
        "Q5_0": Block(32, 22, partial(_nibbles_and_bits, values=1)),
        "Q5_1": Block(32, 24, partial(_nibbles_and_bits, values=2)),
        "IQ4_NL": Block(32, 18, partial(_nibbles, values=1)),
        "MXFP4": Block(32, 17, _power_scale),
        "Q2_K": Block(256, 84, _q2_k),
        "Q3_K": Block(256, 110, _q3_k),
        "Q4_K": Block(256, 144, _q4_k),
        "Q5_K": Block(256, 176, _q5_k),
        "Q6_K": Block(256, 210, _q6_k),
        "IQ4_XS": Block(256, 136, _iq4_xs),
    }
)
