"""Random data of GGUF tensors, and what the `gguf` package says they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import gguf
import numpy as np
from numpy.typing import NDArray

from webrelax.compiler.quantize import FORMATS

GROUPED = [name for name, format in FORMATS.items() if format.group]
# The bytes of a block at which its f16 values start.
HALVES = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "IQ4_NL": (0,),
    "MXFP4": (),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_XS": (0,),
}
MOST_EXPONENT = 251  # of an MXFP4 scale: with a larger one, products overflow


def raw_bytes(name: str, rows: int, columns: int) -> int:
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert columns % elements == 0
    return int(rows * columns // elements * size)


def random_blocks(
    name: str, rows: int, columns: int, seed: int, exponents: Sequence[int] = (0, 1, 15, 30)
) -> NDArray[np.uint8]:
    """Raw data of any bit pattern whose floats are finite: all codes, scales negative, subnormal and zero too.

    f16 values have one of the exponents (0: subnormal). What is no f16 is moderate if they all are.
    """
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, raw_bytes(name, rows, columns), np.uint8)
    wide = max(exponents) > 15
    if name == "F32":
        raw.view(np.uint32)[...] &= 0xBFFFFFFF if wide else 0x80FFFFFF
        raw.view(np.uint32)[...] |= 0 if wide else 0x3F000000
    elif name == "BF16":
        raw.view(np.uint16)[...] &= 0xBFFF if wide else 0x80FF
        raw.view(np.uint16)[...] |= 0 if wide else 0x3F00
    elif name == "F16":
        raw.view(np.uint16)[...] &= 0xBFFF
    else:
        blocks = raw.reshape(-1, raw_bytes(name, 1, FORMATS[name].row_unit))
        for at in HALVES[name]:
            halves = rng.integers(0, 1 << 16, len(blocks), np.uint16) & 0x83FF
            halves |= rng.choice(exponents, len(blocks)).astype(np.uint16) << 10
            blocks[:, at : at + 2] = halves.astype("<u2").view(np.uint8).reshape(-1, 2)
        if name == "MXFP4":
            blocks[:, 0] = rng.integers(*((0, MOST_EXPONENT) if wide else (110, 128)), len(blocks))
    return raw


def dequantized(name: str, raw: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.float32]:
    kind = gguf.GGMLQuantizationType[name]
    data = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    return np.asarray(gguf.dequantize(data, kind), np.float32).reshape(rows, columns)
