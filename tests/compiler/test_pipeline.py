"""The whole pipeline: without NumPy, under limits, the same every time, and blind to names."""

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
print(len(executable.kernels), sum(len(k.source.wgsl) for k in executable.kernels))
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
            assert len(kernel.source.wgsl) < 8192, (name, kernel.source.name)


def renamed(module: Module) -> Module:
    """The module with every value, parameter and weight called something else."""
    text: dict[str, str] = {}

    def other(name: str) -> str:
        return text.setdefault(name, f"x{len(text)}")

    from dataclasses import replace

    from webrelax.compiler.ir import Atom, Binding, Block, Function, Name, map_atoms

    def atom(a: Atom) -> Atom:
        return replace(a, name=other(a.name)) if isinstance(a, Name | Constant) else a

    def function(f: Function) -> Function:
        bindings = tuple(
            Binding(replace(b.name, name=other(b.name.name)), map_atoms(b.value, atom)) for b in f.body.bindings
        )
        params = tuple(replace(p, name=other(p.name)) for p in f.params)
        return replace(f, params=params, body=Block(bindings, atom(f.body.result)))

    return module.with_functions({name: function(f) for name, f in module.functions.items()})


def test_no_pass_reads_a_name() -> None:
    """Values and weights with other names: the same kernels, places and bytecode."""
    plain, other = compile(small_llama("Q4_0")), compile(renamed(small_llama("Q4_0")))
    assert [k.source.wgsl for k in plain.kernels] == [k.source.wgsl for k in other.kernels]
    assert plain.binding_sets == other.binding_sets
    assert [(b.kind, b.size) for b in plain.buffers] == [(b.kind, b.size) for b in other.buffers]
    code = [[f.code for f in e.bytecode.functions] for e in (plain, other)]
    assert code[0] == code[1]


def test_no_pass_reads_a_format_s_name() -> None:
    """A format's own name changed: the same program."""
    from dataclasses import replace

    model = Llama(CONFIG, 64)
    for name, parameter in model.named_parameters():
        if len(parameter.shape) == 2 and not name.startswith("rope."):
            parameter.format = replace(FORMATS["Q4_1"], name="anything")
    other = compile(export_decoder(model, 64, 16).module)
    assert [k.source for k in other.kernels] == [k.source for k in compile(small_llama("Q4_1")).kernels]


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
