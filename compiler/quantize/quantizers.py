"""Rounding f32 weights to the codes of a block format, with the scale of each group searched for the least error.

A format is quantized by its structure alone: one level of groups, that store a float scale and maybe a minimum, and
whole-number codes. The error is the sum of squares over the group, of the values as they will be decoded: scale and
minimum are rounded to their 16 bits before codes are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import WebrelaxError
from .formats import BlockFormat
from .packers import pack_parts, unpack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_SCALE, _MINIMUM = ("scale", "f16"), ("minimum", "f16")
QUANTIZERS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        one.name: one
        for one in (
            BlockFormat("q8", 8, "signed", group=32, stores=(_SCALE,)),
            BlockFormat("q4", 4, "unsigned", group=32, stores=(_SCALE, _MINIMUM)),
            BlockFormat("q4_symmetric", 4, "unsigned", zero=8, group=32, stores=(_SCALE,)),
            BlockFormat("q3", 3, "unsigned", group=32, stores=(_SCALE, _MINIMUM)),
        )
    }
)
_SHRINKS = 16  # how many scales are tried: the range of a group, and less of it
_LEAST = 0.7
_CHUNK = 1 << 18  # elements at a time


@dataclass(frozen=True)
class Quantized:
    """`words` as `unpack` reads them, and the root of the mean squared error in relation to that of the weights."""

    words: NDArray[np.uint32]
    error: float


def quantize(format: BlockFormat, weights: Floats) -> Quantized:
    """Rounds f32[rows, columns] to one of the `QUANTIZERS`, or another format of that structure.

    Raises WebrelaxError for weights that are not finite or too large for the scale, and rows that are not whole groups.
    """
    import numpy as np

    rows, columns = weights.shape
    if columns % format.group:
        raise WebrelaxError(f"rows of {columns} weights do not divide into groups of {format.group}")
    groups = np.ascontiguousarray(weights, np.float32).reshape(-1, format.group)
    if not np.isfinite(groups).all():
        raise WebrelaxError("a weight is not a finite number")
    largest = np.abs(groups).max()
    if largest > np.finfo(np.float16).max:
        raise WebrelaxError(f"a weight of {largest:g} is too large: what a group stores has 16 bits")
    search = _asymmetric if format.has_minimum else _symmetric
    step = max(1, _CHUNK // format.group)
    found = [search(format, groups[at : at + step]) for at in range(0, len(groups), step)]
    codes = np.concatenate([best.codes for best in found])
    values = [np.concatenate(parts) for parts in zip(*(best.values for best in found), strict=True)]
    least = 0 if format.has_minimum else _lowest(format)
    unsigned = codes.astype(np.int64) - (0 if format.code == "signed" else least)
    stored = tuple(value.view(np.uint16) for value in values)
    words = pack_parts(format, (unsigned & (1 << format.bits) - 1).astype(np.uint8), stored, (), rows, columns)
    return Quantized(words, relative_error(weights, unpack(format, words, rows, columns)))


def relative_error(weights: Floats, decoded: Floats) -> float:
    """The root of sum (decoded - weights)^2 / sum weights^2; 0 for weights that are all 0 and stay so."""
    import numpy as np

    wide = weights.astype(np.float64)
    total, wrong = float((wide**2).sum()), float(((decoded - wide) ** 2).sum())
    return sqrt(wrong / total) if total else sqrt(wrong)


def _lowest(format: BlockFormat) -> int:
    """The number that the lowest code of a symmetric format stands for."""
    return -(1 << format.bits - 1) if format.code == "signed" else -format.zero


def _symmetric(format: BlockFormat, groups: Floats) -> _Best:
    """Codes about `zero`; the weight that is farthest from 0 gets the code that is."""
    import numpy as np

    low = _lowest(format)
    high = low + (1 << format.bits) - 1
    farthest = np.take_along_axis(groups, np.abs(groups).argmax(1)[:, None], 1)
    best = _Best(len(groups), groups.shape[1], 1)
    for shrink in _shrinks():
        scale = _half(farthest * (shrink / low))
        codes = np.clip(_rounded(groups, scale), low, high)
        best.offer(groups, codes, codes * scale.astype(np.float32), (scale,))
        # Of these codes the scale with the least squares.
        scale = _half(_over((groups * codes).sum(1, keepdims=True), (codes * codes).sum(1, keepdims=True)))
        codes = np.clip(_rounded(groups, scale), low, high)
        best.offer(groups, codes, codes * scale.astype(np.float32), (scale,))
    return best


def _asymmetric(format: BlockFormat, groups: Floats) -> _Best:
    """Codes from 0, of which a minimum is the value."""
    import numpy as np

    top = (1 << format.bits) - 1
    low, high = groups.min(1, keepdims=True), groups.max(1, keepdims=True)
    best = _Best(len(groups), groups.shape[1], 2)

    def offer(scale: NDArray[np.float16], least: NDArray[np.float16]) -> Floats:
        codes = np.clip(_rounded(groups - least.astype(np.float32), scale), 0, top)
        best.offer(groups, codes, codes * scale.astype(np.float32) + least.astype(np.float32), (scale, least))
        return codes

    for shrink in _shrinks():
        middle, reach = (low + high) / 2, (high - low) / 2 * shrink
        codes = offer(_half(2 * reach / top), _half(middle - reach))
        # Of these codes the line with the least squares.
        mean_code, mean = codes.mean(1, keepdims=True), groups.mean(1, keepdims=True)
        slope = _over(
            ((codes - mean_code) * (groups - mean)).sum(1, keepdims=True),
            ((codes - mean_code) ** 2).sum(1, keepdims=True),
        )
        slope = np.maximum(slope, 0)
        offer(_half(slope), _half(mean - slope * mean_code))
    return best


class _Best:
    """What has the least error so far, group by group."""

    def __init__(self, groups: int, size: int, values: int) -> None:
        import numpy as np

        self.codes = np.zeros((groups, size), np.float32)
        self.values = [np.zeros(groups, np.float16) for _ in range(values)]
        self._error = np.full(groups, np.inf)

    def offer(self, groups: Floats, codes: Floats, decoded: Floats, values: tuple[NDArray[np.float16], ...]) -> None:
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            error = ((decoded.astype(np.float64) - groups) ** 2).sum(1)
        better = error < self._error
        self._error[better], self.codes[better] = error[better], codes[better]
        for kept, value in zip(self.values, values, strict=True):
            kept[better] = value[better, 0]


def _shrinks() -> Iterator[float]:
    return (1 - (1 - _LEAST) * at / (_SHRINKS - 1) for at in range(_SHRINKS))


def _half(values: Floats) -> NDArray[np.float16]:
    import numpy as np

    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def _rounded(values: Floats, scale: NDArray[np.float16]) -> Floats:
    """values / scale to whole numbers; 0 where the scale is 0."""
    import numpy as np

    return np.rint(_over(values, scale.astype(np.float32)))


def _over(values: Floats, by: Floats) -> Floats:
    import numpy as np

    safe = np.where(by == 0, np.float32(1), by)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(by == 0, np.float32(0), values / safe).astype(np.float32)
