"""Programs that models consist of, built by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webrelax.compiler.symbolic import Expr
from webrelax.compiler.tir import Bitcast, Cast, Handle, Index, ProgramBuilder, Scalar, half

Decode = Callable[[Expr, Expr], Scalar]
Weight = Callable[[ProgramBuilder, int, int, str], tuple[Handle, Handle]]


def aligned(words: int) -> int:
    return -(-words // 64) * 64


def nibbles(b: ProgramBuilder, rows: int, columns: int, name: str = "w") -> tuple[Handle, Handle]:
    """(packed, decoded): 4-bit codes with a scale and a minimum a group of 32."""
    section = aligned(rows * columns // 8)
    packed = b.input(name, (section + rows * columns // 32,), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = (packed[at // 8] >> Cast("u32", Index(at % 8 * 4))) & 15
        pair = packed[section + at // 32]
        return Cast("f32", code) * half(pair) + half(pair >> 16)

    return packed, b.compute(f"{name}_decoded", (rows, columns), element)


def nibble_words(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    section = aligned(rows * columns // 8)
    words = rng.integers(0, 1 << 32, section, dtype=np.uint32)
    groups = rows * columns // 32
    pairs = np.stack([rng.random(groups) * 0.01, -rng.random(groups) * 0.08], -1).astype(np.float16)
    return np.concatenate([words, pairs.view(np.uint32).reshape(-1)])


def signed_bytes(b: ProgramBuilder, rows: int, columns: int, name: str = "w") -> tuple[Handle, Handle]:
    """(packed, decoded): signed bytes with a scale a group of 32."""
    section = aligned(rows * columns // 4)
    packed = b.input(name, (section + -(-rows * columns // 64),), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = Bitcast("i32", packed[at // 4] << Cast("u32", Index(24 - at % 4 * 8))) >> 24
        return Cast("f32", code) * half(packed[section + at // 64] >> Cast("u32", Index(at // 32 % 2 * 16)))

    return packed, b.compute(f"{name}_decoded", (rows, columns), element)


def byte_words(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, aligned(rows * columns // 4), dtype=np.uint32)
    groups = -(-rows * columns // 64) * 2
    scales = (rng.random(groups) * 0.001).astype(np.float16)
    return np.concatenate([words, scales.view(np.uint32)])


def floats(b: ProgramBuilder, rows: int, columns: int, name: str = "w") -> tuple[Handle, Handle]:
    """A weight as it is."""
    w = b.input(name, (rows, columns), "f32")
    return w, w
