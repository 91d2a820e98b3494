"""Random graphs compute the same before and after each step of fusion, and stay well-formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler import ops
from webrelax.compiler.ir import Constant, FunctionBuilder, Module, Name, Operator, ShapeValue, Tensor
from webrelax.compiler.pipeline import lower
from webrelax.compiler.symbolic import Expr, Var, as_expr, as_int
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import Program

from ..ops.cases import Array, f32, i32, module_of
from .lowered import assert_same, normal

N = Var("n", 1, 8)
WIDTHS = (1, 2, 4, 6)
UNARY = (ops.relu, ops.negate, ops.tanh, ops.sigmoid, ops.silu, ops.gelu_tanh)
BINARY = (ops.add, ops.subtract, ops.multiply, ops.maximum_of)
TOKENS, CACHE = 3, (1, 5, 1, 2)


@dataclass
class Graph:
    """A function that grows: tensors of [n, width] or [width, n], rows of [width], and a cache of [1, 5, 1, 2]."""

    builder: FunctionBuilder = field(default_factory=lambda: FunctionBuilder("f"))
    values: list[Name] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    states: list[Name] = field(default_factory=list)
    appended: int = 0

    def __post_init__(self) -> None:
        b = self.builder
        self.values = [b.param("x", f32(N, 4)), b.param("y", f32(N, 4)), b.param("z", f32(N, 2)), b.param("r", f32(4))]
        self.ids, self.zeros = b.param("ids", i32(TOKENS)), b.param("zeros", i32(TOKENS))
        self.places = b.param("places", i32(TOKENS))
        self.cache = self.parameter = b.param("cache", f32(*CACHE))

    def arguments(self, n: int) -> list[Any]:
        rng = np.random.default_rng(n)
        ids, places = rng.integers(0, n, TOKENS), rng.permutation(CACHE[1])[:TOKENS]
        arrays = [normal(n, 4), normal(n, 4, seed=1), normal(n, 2, seed=2), normal(4, seed=3)]
        integers = [np.asarray(a, np.int32) for a in (ids, np.zeros(TOKENS), places)]
        return [*arrays, *integers, normal(*CACHE, seed=4)]

    def weight(self, *shape: int) -> Constant:
        name = f"w{len(self.weights)}"
        self.weights[name] = normal(*shape, seed=len(self.weights))
        return Constant(name, f32(*shape))

    def add(self, operator: Operator, *args: Any, **attributes: Any) -> None:
        self.values.append(self.builder.op(operator, *args, **attributes))

    def module(self, results: list[Name]) -> Module:
        consumed = [(7, len(results))] if self.appended else []
        return module_of(self.builder.finish(*results, self.cache, consumed=consumed))


def dims(value: Name) -> tuple[Expr, ...]:
    assert isinstance(value.annotation, Tensor)
    assert value.annotation.shape is not None
    return value.annotation.shape


def grow(graph: Graph, draw: st.DataObject) -> None:
    """Adds one random operator that fits."""

    def pick(choices: Sequence[Any]) -> Any:
        return draw.draw(st.sampled_from(choices))

    x = pick(graph.values)
    shape = dims(x)
    width = as_int(shape[-1])
    same = [v for v in graph.values if dims(v) == shape]
    rows = [v for v in graph.values if dims(v) in (shape[-1:], (1, *shape[-1:]))]
    kind = pick(
        ["unary", "binary", "reduce", "matmul", "move", "gather", "join", "append", "append", "read", "combine"]
    )
    match kind:
        case "unary":
            graph.add(pick(UNARY), x)
        case "binary":
            pair = [x, pick([*same, *rows])]
            graph.add(pick(BINARY), *(pair if len(dims(pair[1])) <= len(shape) else pair[::-1]))
        case "reduce" if len(shape) == 2:
            graph.add(pick([ops.row_sum, ops.softmax]), x)
        case "reduce" if width:
            graph.add(ops.rms_norm, x, graph.weight(width), eps=1e-3)
        case "matmul" if width:
            graph.add(ops.linear, x, graph.weight(pick(WIDTHS), width))
        case "matmul" if len(shape) == 2 and shape[-1] == N:
            graph.add(ops.linear, x, pick([v for v in graph.values if len(dims(v)) == 2 and dims(v)[-1] == N]))
        case "move" if len(shape) == 2 and pick([True, False]):
            graph.add(ops.transpose, x, axes=(1, 0))
        case "move" if len(shape) == 2 and width and width % 2 == 0:
            graph.add(ops.reshape, x, ShapeValue((shape[0] * 2, as_expr(width // 2))))
        case "move":
            graph.add(ops.flatten, x)
        case "gather" if len(shape) == 2 and shape[0] == N:
            graph.add(*(pick([(ops.take, x, graph.ids), (ops.last_row, x)])))
        case "join":
            graph.add(ops.concat, x, pick(same), axis=pick(list(range(len(shape)))))
        case "append" if fresh := [v for v in graph.values if list(map(as_int, dims(v))) == [TOKENS, 2]]:
            new = graph.builder.op(ops.reshape, pick(fresh), ShapeValue((as_expr(TOKENS), as_expr(1), as_expr(2))))
            graph.cache = graph.builder.op(ops.kv_append, graph.cache, new, graph.places, graph.zeros)
            graph.appended += 1
        case "combine" if graph.states:
            # What was read before must not move over a write that came in between.
            graph.states.append(graph.builder.op(pick(BINARY), pick(graph.states), graph.cache))
        case "append" | "read" | "combine":
            graph.states.append(graph.builder.op(pick(UNARY), graph.cache))
            table = graph.builder.op(ops.reshape, pick(graph.states), ShapeValue((as_expr(5), as_expr(2))))
            graph.add(ops.take, table, graph.places)


def computed_again(program: Program) -> list[str]:
    """The reductions of a program that an element reads elsewhere than in its own row."""
    reduced = {name for stage in program.stages if stage.reducer for name in stage.outputs}
    found = []
    for stage in program.stages:
        point = tuple(axis.var for axis in stage.spatial)
        loads = [load for load in stage.loads() if load.buffer in reduced]
        found += [load.buffer for load in loads if load.indices != point[: len(load.indices)]]
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.integers(1, 14), st.integers(1, 3), st.sampled_from([1, 2, 5]))
def test_fusion_keeps_the_values(draw: st.DataObject, operators: int, results: int, n: int) -> None:
    graph = Graph()
    for _ in range(operators):
        grow(graph, draw)
    values = [*graph.values, *graph.states]
    chosen = [values[-1], *(draw.draw(st.sampled_from(values)) for _ in range(results - 1))]
    modules = dict(lower(graph.module(chosen)))  # each is verified
    for program in modules["eliminate_dead_code"].programs.values():
        assert not computed_again(program)
        assert len(program.inputs) + len(program.outputs) - len(program.in_place) <= WEBGPU.storage_buffers
    assert_same(list(modules.values()), graph.arguments(n), graph.weights)
