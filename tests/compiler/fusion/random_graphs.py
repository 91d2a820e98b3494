"""Random functions for fusion: operators of every kind over shared values, with writes in place in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, Atom, Constant, FunctionBuilder, Module, Name, Operator, ShapeValue, Tensor
from webrelax.compiler.ops import product
from webrelax.compiler.symbolic import Expr, Var, as_expr, as_int, evaluate
from webrelax.compiler.tir import Program, ProgramBuilder

from ..ops.cases import Array, f32, i32, module_of
from .lowered import normal

N, M = Var("n", 1, 8), Var("m", 1, 8)
WIDTHS = (1, 2, 4, 6)
UNARY = (ops.relu, ops.negate, ops.tanh, ops.sigmoid, ops.silu, ops.gelu_tanh)
BINARY = (ops.add, ops.subtract, ops.multiply, ops.maximum_of)
KINDS = (
    "unary", "binary", "reduce", "matmul", "twins", "move", "gather", "index", "join", "append", "append", "read",
    "combine", "accumulate", "accumulate",
)  # fmt: skip
TOKENS, CACHE = 3, (1, 5, 1, 2)
MOST_ELEMENTS = 3000


def annotation_dims(annotation: Annotation) -> tuple[Expr, ...]:
    assert isinstance(annotation, Tensor)
    assert annotation.shape is not None
    return annotation.shape


def dims(value: Name) -> tuple[Expr, ...]:
    return annotation_dims(value.annotation)


def _accumulate(arguments: Sequence[Annotation]) -> Program:
    shape = annotation_dims(arguments[0])
    b = ProgramBuilder("accumulate")
    total, x = b.input("total", shape, "f32"), b.input("x", shape, "f32")
    return b.finish(b.scatter("sum", total, shape, lambda *i: i, lambda *i: total[i] + x[i] * 0.5))


def _left(arguments: Sequence[Annotation]) -> Program:
    rows, columns = annotation_dims(arguments[0])
    b = ProgramBuilder("left")
    x = b.input("x", (rows, columns), "f32")
    return b.finish(b.compute("y", (rows, columns // 2), lambda i, j: x[i, j]))


ACCUMULATE = Operator("accumulate", lambda given, _: given[0], lambda given, _: _accumulate(given), overwrites=(0,))
LEFT = Operator("left", lambda given, _: Tensor(_half(given[0]), "f32"), lambda given, _: _left(given))


def _half(annotation: Annotation) -> tuple[Expr, ...]:
    rows, columns = annotation_dims(annotation)
    return rows, columns // 2


@dataclass
class Graph:
    """A function f(x: [n, 4], y: [n, 4], z: [n, 2], s: [m, 4], r: [4], ids, zeros, places: [3], cache) that grows.

    `pick` chooses among several. `values` are tensors that may be read, those of them in `own` may be overwritten;
    `states` have the shape of the cache, `indices` are integers below n.
    """

    pick: Callable[[Sequence[Any]], Any]
    builder: FunctionBuilder = field(default_factory=lambda: FunctionBuilder("f"))
    weights: dict[str, Array] = field(default_factory=dict)
    own: list[Name] = field(default_factory=list)
    states: list[Name] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        param = self.builder.param
        shapes = {"x": (N, 4), "y": (N, 4), "z": (N, 2), "s": (M, 4), "r": (4,)}
        self.values = [param(name, f32(*shape)) for name, shape in shapes.items()]
        self.indices = [param("ids", i32(TOKENS))]
        self.zeros, self.places = param("zeros", i32(TOKENS)), param("places", i32(TOKENS))
        self.cache = self.parameter = param("cache", f32(*CACHE))

    def arguments(self, n: int, m: int) -> list[Any]:
        rng = np.random.default_rng(n)
        ids, places = rng.integers(0, n, TOKENS), rng.permutation(CACHE[1])[:TOKENS]
        shapes = [(n, 4), (n, 4), (n, 2), (m, 4), (4,)]
        integers = [np.asarray(a, np.int32) for a in (ids, np.zeros(TOKENS), places)]
        return [*(normal(*shape, seed=at) for at, shape in enumerate(shapes)), *integers, normal(*CACHE, seed=9)]

    def weight(self, *shape: int) -> Constant:
        name = f"w{len(self.weights)}"
        self.weights[name] = normal(*shape, seed=len(self.weights))
        return Constant(name, f32(*shape))

    def add(self, operator: Operator, *args: Any, **attributes: Any) -> None:
        value = self.builder.op(operator, *args, **attributes)
        if evaluate(product(dims(value)), {N: 8, M: 8}) <= MOST_ELEMENTS:
            self.values.append(value)
            self.own.append(value)

    def module(self, results: Sequence[Name]) -> Module:
        consumed = [(8, len(results))] if self.cache != self.parameter else []
        return module_of(self.builder.finish(*results, self.cache, consumed=consumed))

    def like(self, x: Name) -> list[Name]:
        return [v for v in self.values if dims(v) == dims(x)]

    def grow(self) -> None:
        """Adds one random operator that fits; `used` has the kinds that did."""
        before = [*self.values, *self.states, *self.indices, self.cache]
        kind = self.pick(KINDS)
        # Values just computed, often: one reader each makes long chains.
        self._grow(kind, self.pick(self.pick([self.values, self.values[-1:]])))
        if before != [*self.values, *self.states, *self.indices, self.cache]:
            self.used.add(kind)

    def _grow(self, kind: str, x: Name) -> None:
        pick, shape = self.pick, dims(x)
        width, is_matrix = as_int(shape[-1]), len(shape) == 2
        match kind:
            case "unary":
                operator = pick(UNARY)
                for _ in range(pick([1, 1, 1, 3]) - 1):
                    x = self.builder.op(operator, x)
                self.add(operator, x)
            case "binary":
                rows = [v for v in self.values if dims(v) in (shape[-1:], (1, *shape[-1:]))]
                pair = [x, pick([*self.like(x), *rows])]
                self.add(pick(BINARY), *(pair if len(dims(pair[1])) <= len(shape) else pair[::-1]))
            case "reduce" if is_matrix:
                self.add(pick([ops.row_sum, ops.softmax]), x)
            case "reduce" if width:
                self.add(ops.rms_norm, x, self.weight(width), eps=1e-3)
            case "matmul":
                matrices: list[Atom] = [v for v in self.values if len(dims(v)) == 2 and dims(v)[-1] == shape[-1]]
                if width:
                    matrices.append(self.weight(pick(WIDTHS), width))
                if matrices:
                    self.add(ops.linear, x, pick(matrices))
            case "twins" if width:
                weights = [self.weight(4, width) for _ in range(2)]
                first = self.builder.op(ops.linear, x, weights[0])
                self.add(pick(BINARY), self.builder.op(pick(UNARY), first), self.builder.op(ops.linear, x, weights[1]))
            case "move":
                self._move(x)
            case "gather" if is_matrix and shape[0] == N:
                self.add(*(pick([(ops.take, x, pick(self.indices)), (ops.last_row, x)])))
            case "index":
                self.indices.append(self.builder.op(ops.relu, pick(self.indices)))
            case "join":
                self.add(ops.concat, x, pick(self.like(x)), axis=pick(range(len(shape))))
            case "accumulate" if targets := [v for v in self.own if v in self.values]:
                target = pick(targets)
                if others := [v for v in self.like(target) if v != target]:
                    self.values.remove(target)
                    self.add(ACCUMULATE, target, pick(others))
            case "append" if fresh := [v for v in self.values if list(map(as_int, dims(v))) == [TOKENS, 2]]:
                new = self.builder.op(ops.reshape, pick(fresh), ShapeValue((as_expr(TOKENS), as_expr(1), as_expr(2))))
                self.cache = self.builder.op(ops.kv_append, self.cache, new, self.places, self.zeros)
            case "combine" if self.states:
                # What was read before must not move over a write that came in between.
                self.states.append(self.builder.op(pick(BINARY), pick(self.states), self.cache))
            case "append" | "read" | "combine":
                self.states.append(self.builder.op(pick(UNARY), self.cache))
                table = self.builder.op(ops.reshape, pick(self.states), ShapeValue((as_expr(5), as_expr(2))))
                self.add(ops.take, table, self.places)

    def _move(self, x: Name) -> None:
        rows, *rest = dims(x)
        width = as_int(rest[0]) if rest else None
        choices: list[Callable[[], None]] = [lambda: self.add(ops.flatten, x)]
        if rest:
            choices.append(lambda: self.add(ops.transpose, x, axes=(1, 0)))
        if width and width % 2 == 0:
            choices.append(lambda: self.add(ops.reshape, x, ShapeValue((rows * 2, as_expr(width // 2)))))
            choices.append(lambda: self.add(LEFT, x))
        self.pick(choices)()
