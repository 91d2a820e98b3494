"""Matrix products with, and rows of, weights of each format, on WebGPU and on the CPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.executable import Executable
from webrelax.compiler.ir import Constant, FunctionBuilder, ModuleBuilder, Tensor
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.quantize import FORMATS, dequantize, pack, packed_words
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WASM, WEBGPU
from webrelax.compiler.wasm.library import LIBRARY

from .blocks import dequantized, random_blocks

ROWS, COLUMNS = 70, 512
N = Var("n", 1, 64)
# Formats whose structure the CPU's routines know; the others get generated kernels.
IN_THE_LIBRARY = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}


def product(name: str, target: Any, library: Any = ()) -> Executable:
    """`one` and `many`: x times the transpose of a weight. `rows`: some rows of it."""
    words = packed_words(FORMATS[name], ROWS, COLUMNS)
    weight = Constant("w", Tensor((words,), "u32"))
    how: dict[str, Any] = {"format": FORMATS[name], "rows": ROWS, "columns": COLUMNS}
    module = ModuleBuilder()
    for function, n in (("one", 1), ("many", N)):
        b = FunctionBuilder(function)
        x = b.param("x", Tensor((n, COLUMNS), "f32"))
        module.add_function(b.finish(b.op(ops.linear, x, b.op(dequantize, weight, **how))))
    b = FunctionBuilder("rows")
    ids = b.param("ids", Tensor((N,), "i32"))
    module.add_function(b.finish(b.op(ops.take, b.op(dequantize, weight, **how), ids)))
    return compile(module.finish(), target, library)


@pytest.mark.parametrize("target", [WEBGPU, WASM], ids=["webgpu", "wasm"])
@pytest.mark.parametrize("name", FORMATS)
def test_against_numpy(name: str, target: Any) -> None:
    rng = np.random.default_rng(5)
    raw = random_blocks(name, ROWS, COLUMNS, 4, exponents=(0, 8, 10))
    packed = pack(FORMATS[name], raw.data, ROWS, COLUMNS)
    weight = dequantized(name, raw, ROWS, COLUMNS).astype(np.float64)
    runner = Runner.of(product(name, target), {"w": packed})
    for function, n in (("one", 1), ("many", 40)):
        x = rng.standard_normal((n, COLUMNS)).astype(np.float32)
        (y,) = runner.call(function, {"x": x}).values()
        expected = x.astype(np.float64) @ weight.T
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))
    ids = np.array([3, ROWS - 1, 0, 3], np.int32)
    (y,) = runner.call("rows", {"ids": ids}).values()
    np.testing.assert_allclose(y, weight[ids], rtol=1e-6, atol=1e-6 * float(np.abs(weight).max()))


@pytest.mark.parametrize("name", FORMATS)
def test_the_routines_take_what_they_know(name: str) -> None:
    kernels = {kernel.source.name for kernel in product(name, WASM, LIBRARY).kernels}
    routines = {"float_linear", "quantize_activations", "quantized_vector", "quantized_matrix"}
    kernels = {kernel for kernel in kernels if "take" not in kernel}
    assert kernels <= routines if name in IN_THE_LIBRARY else not kernels & routines
