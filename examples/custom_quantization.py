"""A quantization of your own: `python examples/custom_quantization.py`.

A weight is one of eight values, picked by a 3-bit code, times a scale that it shares with 31 neighbours: 3.5 bits. The
compiler has never heard of this format. All that it gets is a tensor program that says what a decoded weight is. From
the program's loops it finds that the decode can run inside a matrix multiplication, and it schedules the result by the
same rules as the formats that it comes with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.executable import Executable
from webrelax.compiler.ir import Annotation, Constant, FunctionBuilder, Module, ModuleBuilder, Name, Operator, Tensor
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.quantize import FORMATS, dequantize, packed_words
from webrelax.compiler.schedule import rule_for
from webrelax.compiler.symbolic import Expr, Var, as_int
from webrelax.compiler.tir import Bitcast, Program, ProgramBuilder, Scalar, as_scalar, classify, half

Array: TypeAlias = np.ndarray[Any, Any]

BITS, GROUP = 3, 32
# Close together where weights are many: they are about normally distributed.
CODEBOOK = np.array([-1, -0.6, -0.34, -0.11, 0.11, 0.34, 0.6, 1], np.float32)


# Packing: once, in NumPy.


def quantize(weight: Array) -> dict[str, Array]:
    """Packs f32[rows, columns], columns a multiple of 64: what the decode below reads.

    `planes` has three words a group: bit k of word p is bit p of the code of weight k. `scales` has two halves a word.
    """
    groups = weight.reshape(-1, GROUP)
    scales = np.abs(groups).max(1).astype(np.float16)
    steps = groups / np.maximum(scales, np.float16(1e-7)).astype(np.float32)[:, None]
    codes = np.abs(steps[:, :, None] - CODEBOOK).argmin(-1)
    bits = codes[:, None, :] >> np.arange(BITS)[:, None] & 1
    planes = np.packbits(bits.astype(np.uint8), -1, bitorder="little").view(np.uint32)
    rows, columns = weight.shape
    return {
        "planes": planes.reshape(rows, columns // GROUP, BITS),
        "scales": scales.view(np.uint32),
        "codebook": CODEBOOK,
    }


def dequantize_in_numpy(packed: Mapping[str, Array]) -> Array:
    """The weight that is left, f32[rows, columns]."""
    planes, scales = packed["planes"], packed["scales"].view(np.float16).astype(np.float32)
    bits = planes[..., None] >> np.arange(GROUP, dtype=np.uint32) & 1
    codes = (bits << np.arange(BITS, dtype=np.uint32)[:, None]).sum(-2)
    values: Array = packed["codebook"][codes] * scales.reshape(*planes.shape[:2], 1)
    return values.reshape(planes.shape[0], -1)


# Decoding: a tensor program, and an operator that stands for it.


def decode_program(rows: int, columns: int) -> Program:
    """What weight (r, k) is, in terms of the packed words."""
    b = ProgramBuilder("decode")
    planes = b.input("planes", (rows, columns // GROUP, BITS), "u32")
    scales = b.input("scales", (rows * columns // (2 * GROUP),), "u32")
    codebook = b.input("codebook", (1 << BITS,), "f32")

    def code(r: Expr, k: Expr) -> Scalar:
        bits = [(planes[r, k // GROUP, p] >> as_scalar(k % GROUP, "u32")) & 1 for p in range(BITS)]
        return Bitcast("i32", bits[0] | (bits[1] << 1) | (bits[2] << 2))

    codes = b.compute("codes", (rows, columns), code)

    def value(r: Expr, k: Expr) -> Scalar:
        group = r * (columns // GROUP) + k // GROUP
        return codebook[codes[r, k]] * half(scales[group // 2] >> as_scalar(group % 2 * 16, "u32"))

    return b.finish(b.compute("weight", (rows, columns), value))


def size(arguments: tuple[Annotation, ...]) -> tuple[int, int]:
    """(rows, columns) of the weight that these arguments hold."""
    match arguments:
        case (Tensor(shape=(rows, groups, _)), _, _):
            return as_int(rows) or 0, (as_int(groups) or 0) * GROUP
    raise ValueError(f"planes, scales and a codebook make up a weight, not {', '.join(map(str, arguments))}")


decode = Operator(
    "decode",
    lambda arguments, attributes: Tensor(size(arguments), "f32"),
    lambda arguments, attributes: decode_program(*size(arguments)),
)


# Using it: in place of a weight, whatever reads it.

Weight: TypeAlias = Callable[[FunctionBuilder, int, int], Name]


def ours(graph: FunctionBuilder, rows: int, columns: int) -> Name:
    """A weight in the format above."""
    buffers = decode_program(rows, columns).inputs
    return graph.op(decode, *(Constant(b.name, Tensor(b.shape, b.dtype)) for b in buffers))


def built_in(graph: FunctionBuilder, rows: int, columns: int) -> Name:
    """A weight in one of the compiler's own formats: 4-bit codes, with a scale and a minimum for 32 of them, 5 bits."""
    format = FORMATS["Q4_1"]
    packed = Constant("packed", Tensor((packed_words(format, rows, columns),), "u32"))
    return graph.op(dequantize, packed, format=format, rows=rows, columns=columns)


def linear(weight: Weight, n: Expr | int, rows: int, columns: int) -> Module:
    """f(x: [n, columns]) = x times the transpose of a weight."""
    graph = FunctionBuilder("f")
    x = graph.param("x", Tensor((n, columns), "f32"))
    builder = ModuleBuilder()
    builder.add_function(graph.finish(graph.op(ops.linear, x, weight(graph, rows, columns), hint="y")))
    return builder.finish()


def rule_of(executable: Executable) -> str:
    """The schedule rule that made the only kernel."""
    (kernel,) = executable.kernels
    return rule_for(executable.module.programs[kernel.program]).name


def main() -> None:
    """Packs a weight, compiles products with it, runs them, and says what became of the decode."""
    rows, columns = 256, 512
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((rows, columns)).astype(np.float32)
    packed = quantize(weight)
    used = sum(array.nbytes for name, array in packed.items() if name != "codebook")
    left = dequantize_in_numpy(packed)
    error = np.sqrt(((left - weight) ** 2).mean() / (weight**2).mean())
    print(f"Packed: {8 * used / weight.size:g} bits a weight; what is lost: {error:.0%} of the weights' size.")

    program = decode_program(rows, columns)
    print(f"The decode, which the compiler finds to be {classify(program)} from its loops:\n\n{program}")

    for title, n, given in (("One row (a vector)", 1, 1), ("Many rows (a matrix)", Var("n", 1, 128), 50)):
        executable = compile(linear(ours, n, rows, columns))
        (kernel,) = executable.kernels
        x = rng.standard_normal((given, columns)).astype(np.float32)
        (y,) = Runner.of(executable, packed).call("f", {"x": x}).values()
        print(f"{title}: {len(executable.kernels)} kernel, {kernel.source.name}, which decodes what it multiplies.")
        other = rule_of(compile(linear(built_in, n, rows, columns)))
        print(f"  schedule rule: {rule_of(executable)}; for the built-in 4-bit format: {other}")
        print(f"  on the device, largest difference to NumPy: {np.abs(y - x @ left.T).max():.1e}")


if __name__ == "__main__":
    main()
