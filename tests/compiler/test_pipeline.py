"""The whole pipeline: without NumPy, under limits, and the same every time."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from webrelax.compiler import ops
from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import Constant, FunctionBuilder, Module, ModuleBuilder, ShapeValue, Tensor, print_module
from webrelax.compiler.pipeline import compile, lower
from webrelax.compiler.quantize import FORMATS
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.vm import encode

CONFIG = LlamaConfig(
    vocabulary=100,
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=16,
    feed_forward=96,
    norm_eps=1e-5,
    rope_theta=10000.0,
    tied_embedding=True,
    interleaved_rope=True,
)

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.pipeline import compile
from webrelax.compiler.vm import encode
config = LlamaConfig(100, 64, 2, 4, 2, 16, 96, 1e-5, 10000.0, True, True)
executable = compile(export_decoder(Llama(config, 64), 64, 16).module)
assert encode(executable.bytecode)
print(len(executable.kernels), sum(len(k.source.text) for k in executable.kernels))
"""


def small_llama(weight_format: str = "F32") -> Module:
    model = Llama(CONFIG, 64)
    for name, parameter in model.named_parameters():
        if len(parameter.shape) == 2 and not name.startswith("rope."):
            parameter.format = FORMATS[weight_format]
    return export_decoder(model, 64, 16).module


def test_compiling_needs_no_numpy() -> None:
    run = subprocess.run([sys.executable, "-P", "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True)
    kernels, size = map(int, run.stdout.split())
    assert kernels > 10
    assert size > 5000


def test_compiling_twice_gives_the_same() -> None:
    first, second = compile(small_llama()), compile(small_llama())
    assert encode(first.bytecode) == encode(second.bytecode)
    assert [k.source for k in first.kernels] == [k.source for k in second.kernels]
    assert first.binding_sets == second.binding_sets
    assert first.buffers == second.buffers


def test_no_kernel_is_over_8_kb() -> None:
    for name in ("F32", "F16", "Q8_0", "Q4_0", "Q4_1"):
        for kernel in compile(small_llama(name)).kernels:
            assert len(kernel.source.text) < 8192, (name, kernel.source.name)


def test_a_shape_without_a_bound_is_refused() -> None:
    n = Var("n", 1)
    b = FunctionBuilder("f")
    x = b.param("x", Tensor((n, 4), "f32"))
    y = b.op(ops.softmax, b.op(ops.softmax, x))
    builder = ModuleBuilder()
    builder.add_function(b.finish(y))
    with pytest.raises(WebrelaxError, match="bound"):
        compile(builder.finish())


def test_a_tensor_above_the_binding_limit_is_refused() -> None:
    n = Var("n", 1, 1 << 20)
    b = FunctionBuilder("f")
    x = b.param("x", Tensor((n,), "f32"))
    wide = b.op(ops.multiply, b.op(ops.reshape, x, ShapeValue((n, as_expr(1)))), Constant("w", Tensor((1, 64), "f32")))
    builder = ModuleBuilder()
    builder.add_function(b.finish(b.op(ops.row_sum, b.op(ops.softmax, wide))))
    with pytest.raises(WebrelaxError, match=r"268435456|134217728"):
        compile(builder.finish())


def test_the_text_of_every_step_is_repeatable() -> None:
    first, second = ([print_module(m) for _, m in lower(small_llama("Q8_0"))] for _ in range(2))
    assert first == second
    assert not any(re.search(r" object at 0x", text) for text in first)
