"""Times single kernels of a SmolLM2-sized model on the native device: `python bench/kernels.py`.

Prints milliseconds a dispatch, and GFLOP/s and GB/s of weights read from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from webrelax.compiler.native.device import TABLE_ALIGNMENT, default_device
from webrelax.compiler.schedule import rule_for, schedule
from webrelax.compiler.symbolic import Expr, Var, evaluate
from webrelax.compiler.tir import Bitcast, Cast, Handle, Index, Program, ProgramBuilder, Scalar, half
from webrelax.compiler.wgsl import emit

N = Var("n", 1, 128)


def linear(rows: int, columns: int, n: Expr | int, weight: Callable[..., tuple[int, Handle]]) -> tuple[Program, int]:
    """(program, bytes of the weight) of x[n, columns] times the weight's transpose."""
    b = ProgramBuilder("linear")
    x = b.input("x", (n, columns), "f32")
    size, w = weight(b, rows, columns)
    return b.finish(b.reduce("y", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])), size


def nibbles(b: ProgramBuilder, rows: int, columns: int) -> tuple[int, Handle]:
    """4-bit codes with a scale and a minimum a group of 32."""
    section = rows * columns // 8
    words = section + rows * columns // 32
    packed = b.input("w", (words,), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = (packed[at // 8] >> Cast("u32", Index(at % 8 * 4))) & 15
        pair = packed[section + at // 32]
        return Cast("f32", code) * half(pair) + half(pair >> 16)

    return words * 4, b.compute("decoded", (rows, columns), element)


def signed_bytes(b: ProgramBuilder, rows: int, columns: int) -> tuple[int, Handle]:
    """Signed bytes with a scale a group of 32."""
    section = rows * columns // 4
    words = section + rows * columns // 64
    packed = b.input("w", (words,), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = Bitcast("i32", packed[at // 4] << Cast("u32", Index(24 - at % 4 * 8))) >> 24
        return Cast("f32", code) * half(packed[section + at // 64] >> Cast("u32", Index(at // 32 % 2 * 16)))

    return words * 4, b.compute("decoded", (rows, columns), element)


def measure(program: Program, symbols: dict[Var, int], repeat: int = 5) -> tuple[float, int]:
    """(best seconds of a dispatch, bytes of WGSL)."""
    kernel = schedule(program)
    source = emit(kernel, {s: at for at, s in enumerate(program.symbols)}, 4)
    device = default_device()
    pipeline = device.pipeline(source)
    table = device.table(TABLE_ALIGNMENT)
    row = np.zeros(64, np.int32)
    row[: len(program.symbols)] = [symbols[s] for s in program.symbols]
    device.write(table, row)
    bindings: list[tuple[Any, int, int]] = []
    for binding in kernel.bindings:
        size = evaluate(binding.buffer.size, symbols)
        buffer = device.buffer(size)
        device.write(buffer, np.random.default_rng(0).integers(0, 1 << 13, size // 4, dtype=np.uint32))
        bindings.append((buffer, 0, size))
    group = device.bind(pipeline, table, TABLE_ALIGNMENT, bindings)
    x, y, z = (evaluate(e, symbols) for e in kernel.grid)
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        device.submit([(pipeline, group, (x, y, z), 0)])
        device.read(bindings[-1][0], 4)
        best = min(best, time.perf_counter() - start)
    return best, len(source.wgsl)


def main() -> None:
    print(default_device().description)
    print(f"{'kernel':<34}{'rule':<7}{'WGSL':>6}{'ms':>9}{'GFLOP/s':>9}{'GB/s':>7}")
    for title, rows, columns, n, weight in (
        ("[1,576] x [1536,576] 4-bit", 1536, 576, 1, nibbles),
        ("[1,1536] x [576,1536] 4-bit", 576, 1536, 1, nibbles),
        ("[1,576] x [49152,576] 8-bit", 49152, 576, 1, signed_bytes),
        ("[128,576] x [1536,576] 4-bit", 1536, 576, 128, nibbles),
        ("[128,1536] x [576,1536] 4-bit", 576, 1536, 128, nibbles),
    ):
        program, size = linear(rows, columns, 1 if n == 1 else N, weight)
        seconds, text = measure(program, dict.fromkeys(program.symbols, n))
        flops = 2 * n * rows * columns / seconds / 1e9
        name = rule_for(program).name
        print(f"{title:<34}{name:<7}{text:>6}{seconds * 1e3:>9.2f}{flops:>9.2f}{size / seconds / 1e9:>7.2f}")


if __name__ == "__main__":
    main()
