"""Modules as Python objects: names of parameters, and what reading one adds to a graph."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webrelax.compiler import ops
from webrelax.compiler.frontend import nn
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import (
    Constant,
    FunctionBuilder,
    Module,
    Object,
    Shape,
    ShapeValue,
    Tensor,
    print_module,
    verify,
)
from webrelax.compiler.quantize import FORMATS, packed_words
from webrelax.compiler.symbolic import Var

N = Var("n")
CONFIG = LlamaConfig(
    vocabulary=32, hidden=8, layers=2, heads=2, kv_heads=1, head_size=4, feed_forward=12, norm_eps=1e-5, rope_theta=1e4,
    tied_embedding=True, interleaved_rope=True,
)  # fmt: skip


class Inner(nn.Module):
    def __init__(self) -> None:
        self.linear = nn.Linear(4, 3)
        self.note = "no parameter"


class Outer(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Embedding(5, 4)
        self.parts = [Inner(), [nn.Parameter(7), Inner()]]
        self.again = self.first
        self.scale = nn.Parameter(2)


def test_parameters_are_named_by_their_paths_and_come_once() -> None:
    outer = Outer()
    outer.name_parameters()
    names = ["first.weight", "parts.0.linear.weight", "parts.1.0", "parts.1.1.linear.weight", "scale"]
    assert [name for name, _ in outer.named_parameters()] == names
    assert [parameter.name for _, parameter in outer.named_parameters()] == names
    assert next(name for name, _ in outer.named_parameters("model.")) == "model.first.weight"


def test_names_of_a_llama() -> None:
    names = [name for name, _ in Llama(CONFIG, 16).named_parameters()]
    assert names[:4] == ["embedding.weight", "rope.cosines", "rope.sines", "layers.0.attention_norm.weight"]
    assert "layers.1.feed_forward.down.weight" in names
    assert "output.weight" not in names
    untied = Llama(replace(CONFIG, tied_embedding=False), 16)
    assert [name for name, _ in untied.named_parameters()][-1] == "output.weight"


def test_a_plain_parameter_is_a_constant() -> None:
    graph, parameter = FunctionBuilder("f"), nn.Parameter(3, 4)
    parameter.name = "w"
    assert parameter.read(graph).atom == Constant("w", Tensor((3, 4), "f32"))
    assert parameter.rows_columns == (3, 4)
    assert nn.Parameter(4).rows_columns == (1, 4)


@pytest.mark.parametrize("shape", [(3, 64), (64,)])
def test_a_quantized_parameter_is_read_through_its_decode(shape: tuple[int, ...]) -> None:
    graph, parameter = FunctionBuilder("f"), nn.Parameter(*shape)
    parameter.name, parameter.format = "w", FORMATS["Q8_0"]
    value = parameter.read(graph)
    assert value.atom.annotation == Tensor(shape, "f32")
    function = graph.finish(value.atom)
    words = packed_words(FORMATS["Q8_0"], *parameter.rows_columns)
    assert parameter.annotation == Tensor((words,), "u32")
    assert f"@w, columns=64, format={FORMATS['Q8_0']}" in print_module(Module({"f": function}))
    verify(Module({"f": function}))


def test_values_trace_what_is_done_with_them() -> None:
    graph = FunctionBuilder("f")
    x = nn.Value(graph, graph.param("x", Tensor((N, 8), "f32")))
    y = (x + x) * x
    z = nn.RMSNorm(8, 1e-6).forward(nn.apply(ops.silu, y.reshape(N, 2, 4), hint="activated").reshape(N, 8))
    assert z.shape == Tensor((N, 8)).shape
    names = [binding.name.name for binding in graph.finish(z.atom).body.bindings]
    assert names == ["add", "multiply", "reshape", "activated", "reshape_1", "rms_norm"]
    assert nn.Value(graph, ShapeValue((N,))).shape == (N,)
    for unknown in (Tensor(ndim=2), Object(), Shape()):
        with pytest.raises(ValueError, match=r"the shape of .* is not known"):
            _ = nn.Value(graph, graph.param("u", unknown)).shape


def test_the_exported_functions() -> None:
    exported = export_decoder(Llama(CONFIG, 16), 16, 8)
    verify(exported.module)
    assert list(exported.module.functions) == ["prefill", "decode"]
    assert exported.state == dict.fromkeys(("keys_0", "values_0", "keys_1", "values_1"), (1, 16, 1, 4))
    text = print_module(exported.module)
    assert text.startswith(
        'def prefill(tokens: Tensor((n,), "i32"), positions: Tensor((n,), "i32"), sequences: Tensor((n,), "i32"),'
        ' past: Shape([m]), keys_0: Tensor((1, 16, 1, 4), "f32")'
    )
    assert "    # consumes keys_0, result 1 carries it on\n" in text
    assert "    # requires m + n <= 16\n" in text
    for function in exported.module.functions.values():
        assert function.results[0] == Tensor((1, 32), "f32")
        assert [p for p, _ in function.consumed] == [4, 5, 6, 7]
