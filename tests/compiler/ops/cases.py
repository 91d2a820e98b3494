"""Each operator with arguments that fit, and what NumPy says of it: shared by the tests of ops, tir and passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Annotation,
    Function,
    FunctionBuilder,
    Module,
    ModuleBuilder,
    Operator,
    Shape,
    ShapeValue,
)
from webrelax.compiler.ir import Tensor as T
from webrelax.compiler.symbolic import Expr, Var, evaluate

Array = np.ndarray[Any, Any]
N = Var("n", 0, 40)
M = Var("m", 0, 40)


@dataclass(frozen=True)
class Case:
    """`reference` takes the arrays and the values of n and m. Integers are below `below`; argument `zero` is all 0."""

    operator: Operator
    arguments: Sequence[Annotation]
    reference: Callable[..., Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    below: int = 1
    least: int = 0
    zero: int | None = None

    @property
    def module(self) -> Module:
        """See `module_calling`."""
        return module_calling(self.operator, self.arguments, self.attributes)

    def inputs(self, n: int, m: int, seed: int = 0) -> list[Any]:
        """Arguments of `f`."""
        rng = np.random.default_rng(seed)
        tensors = [a for a in self.arguments if isinstance(a, T)]
        arrays = [random_array(a, {N: n, M: m}, rng, self.below) for a in tensors]
        if self.zero is not None:
            arrays[self.zero][...] = 0
        return [*arrays, (m,)]


def module_calling(operator: Operator, arguments: Sequence[Annotation], attributes: Mapping[str, Any]) -> Module:
    """One function `f` that calls the operator; a shape argument is a constant of it, and m comes last, as a shape."""
    graph = FunctionBuilder("f")
    params = [
        ShapeValue(a.dims or ()) if isinstance(a, Shape) else graph.param(f"a{at}", a) for at, a in enumerate(arguments)
    ]
    graph.param("past", Shape((M,)))
    result = graph.op(operator, *params, **attributes)
    return module_of(graph.finish(result, consumed=[(at, 0) for at in operator.overwrites]))


def module_of(*functions: Function) -> Module:
    builder = ModuleBuilder()
    for function in functions:
        builder.add_function(function)
    return builder.finish()


def random_array(annotation: T, env: Mapping[Var, int], rng: np.random.Generator, below: int) -> Array:
    shape = [evaluate(d, env) for d in annotation.shape or ()]
    if annotation.dtype == "f32":
        return rng.standard_normal(shape).astype(np.float32)
    # A permutation where one fits: scattered rows must be distinct.
    flat = rng.permutation(max(below, 1))[: int(np.prod(shape))]
    return np.resize(flat, shape).astype(np.int32)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    total: Array = e / e.sum(-1, keepdims=True)
    return total


def rotate(x: Array, positions: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    out = np.empty_like(x)
    half = x.shape[-1] // 2
    a, b = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :half], np.s_[..., half:])
    c, s = cos[positions][:, None], sin[positions][:, None]
    out[a], out[b] = x[a] * c - x[b] * s, x[b] * c + x[a] * s
    return out


def append(cache: Array, new: Array, positions: Array, sequences: Array) -> Array:
    after = cache.copy()
    after[sequences, positions] = new
    return after


def scores(
    q: Array, keys: Array, positions: Array, sequences: Array, length: int, scale: float, window: int = 0,
    softcap: float = 0,
) -> Array:  # fmt: skip
    group = q.shape[1] // keys.shape[2]
    k = np.repeat(keys[sequences][:, :length], group, axis=2)
    dots = np.einsum("ihd,ijhd->hij", q, k) * np.float32(scale)
    if softcap:
        dots = np.tanh(dots / np.float32(softcap)) * np.float32(softcap)
    key, position = np.arange(length), positions[:, None]
    seen = (key <= position) & (key > position - window if window else True)
    return np.where(seen, dots, np.float32(-1e30))


def attend(q: Array, keys: Array, values: Array, positions: Array, sequences: Array, length: int) -> Array:
    return mixed(softmax(scores(q, keys, positions, sequences, length, _SCALE)), values, sequences)


def mixed(weights: Array, values: Array, sequences: Array) -> Array:
    group = weights.shape[0] // values.shape[2]
    v = np.repeat(values[sequences][:, : weights.shape[2]], group, axis=2)
    result: Array = np.einsum("hij,ijhd->ihd", weights, v)
    return result


def f32(*shape: Expr | int) -> T:
    return T(shape, "f32")


def i32(*shape: Expr | int) -> T:
    return T(shape, "i32")


def sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def gelu(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


_ROPE = (f32(N, 3, 6), i32(N), f32(50, 3), f32(50, 3))
_CACHE = f32(1, 48, 3, 5)
_TOKENS = (i32(N), i32(N))
_SCALE = 0.3

CASES: Mapping[str, Case] = {
    "add": Case(ops.add, (f32(N, 7), f32(N, 7)), lambda x, y, n, m: x + y),
    "add_row": Case(ops.add, (f32(N, 7), f32(7)), lambda x, y, n, m: x + y),
    "add_column": Case(ops.add, (f32(1, 7), f32(N, 1)), lambda x, y, n, m: x + y),
    "add_ones": Case(ops.add, (f32(1, 1), f32(1)), lambda x, y, n, m: x + y),
    "add_scalar": Case(ops.add, (f32(), f32(N, M)), lambda x, y, n, m: x + y),
    "subtract": Case(ops.subtract, (f32(N, 3), f32(N, 1)), lambda x, y, n, m: x - y),
    "multiply": Case(ops.multiply, (f32(M, N), f32(N)), lambda x, y, n, m: x * y),
    "divide": Case(ops.divide, (f32(N, 5), f32(N, 5)), lambda x, y, n, m: x / y),
    "maximum": Case(ops.maximum_of, (f32(N, 5), f32(5)), lambda x, y, n, m: np.maximum(x, y)),
    "exp": Case(ops.exp_of, (f32(N, 3),), lambda x, n, m: np.exp(x)),
    "relu": Case(ops.relu, (f32(N, 3),), lambda x, n, m: np.maximum(x, 0)),
    "relu_i32": Case(ops.relu, (i32(N),), lambda x, n, m: np.maximum(x, 0), below=40),
    "sigmoid": Case(ops.sigmoid, (f32(N, 3),), lambda x, n, m: sigmoid(x)),
    "silu": Case(ops.silu, (f32(N, 3),), lambda x, n, m: x * sigmoid(x)),
    "gelu_tanh": Case(ops.gelu_tanh, (f32(N, 3),), lambda x, n, m: gelu(x)),
    "tanh": Case(ops.tanh, (f32(N, 3),), lambda x, n, m: np.tanh(x)),
    "negate": Case(ops.negate, (f32(N, 3),), lambda x, n, m: -x),
    "linear": Case(ops.linear, (f32(N, 7), f32(5, 7)), lambda x, w, n, m: x @ w.T),
    "linear_vector": Case(ops.linear, (f32(7), f32(5, 7)), lambda x, w, n, m: x @ w.T),
    "linear_cube": Case(ops.linear, (f32(N, 2, 7), f32(M, 7)), lambda x, w, n, m: x @ w.T),
    "linear_symbolic": Case(ops.linear, (f32(3, N), f32(5, N)), lambda x, w, n, m: x @ w.T),
    "softmax": Case(ops.softmax, (f32(N, 9),), lambda x, n, m: softmax(x)),
    "softmax_symbolic": Case(ops.softmax, (f32(2, N, M),), lambda x, n, m: softmax(x)),
    "rms_norm": Case(
        ops.rms_norm,
        (f32(N, 9), f32(9)),
        lambda x, w, n, m: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
        {"eps": 1e-5},
    ),
    "rms_norm_symbolic": Case(
        ops.rms_norm,
        (f32(3, N), f32(N)),
        lambda x, w, n, m: x / np.sqrt((x * x).sum(-1, keepdims=True) / max(n, 1) + 1e-5) * w,
        {"eps": 1e-5},
    ),
    "row_sum": Case(ops.row_sum, (f32(N, 9),), lambda x, n, m: x.sum(-1)),
    "row_sum_symbolic": Case(ops.row_sum, (f32(N),), lambda x, n, m: x.sum(-1)),
    "reshape": Case(ops.reshape, (f32(N, 6), Shape((3, N, 2))), lambda x, n, m: x.reshape(3, n, 2)),
    "reshape_symbolic": Case(ops.reshape, (f32(N, M), Shape((M, N))), lambda x, n, m: x.reshape(m, n)),
    "reshape_scalar": Case(ops.reshape, (f32(1, 1), Shape(())), lambda x, n, m: x.reshape(())),
    "flatten": Case(ops.flatten, (f32(N, 2, M),), lambda x, n, m: x.reshape(-1)),
    "transpose": Case(ops.transpose, (f32(N, 3, M),), lambda x, n, m: x.transpose(2, 0, 1), {"axes": (2, 0, 1)}),
    "take": Case(ops.take, (f32(40, 5), i32(N)), lambda t, ids, n, m: t[ids], below=40),
    "last_row": Case(ops.last_row, (f32(N, 5),), lambda x, n, m: x[-1:], least=1),
    "concat": Case(ops.concat, (f32(N, 3), f32(M, 3)), lambda x, y, n, m: np.concatenate([x, y]), {"axis": 0}),
    "concat_columns": Case(
        ops.concat, (f32(2, N, 3), f32(2, N, 4)), lambda x, y, n, m: np.concatenate([x, y], 2), {"axis": 2}
    ),
    "rope": Case(ops.rope, _ROPE, lambda x, p, c, s, n, m: rotate(x, p, c, s, False), {"interleaved": False}, below=50),
    "rope_interleaved": Case(
        ops.rope, _ROPE, lambda x, p, c, s, n, m: rotate(x, p, c, s, True), {"interleaved": True}, below=50
    ),
    "kv_append": Case(
        ops.kv_append,
        (_CACHE, f32(N, 3, 5), *_TOKENS),
        lambda c, x, p, s, n, m: append(c, x, p, s),
        below=48,
        zero=3,
    ),
    "attention_scores": Case(
        ops.attention_scores,
        (f32(N, 6, 5), _CACHE, *_TOKENS, Shape((M,))),
        lambda q, k, p, s, n, m: scores(q, k, p, s, m, _SCALE),
        {"scale": _SCALE},
        below=48,
        zero=3,
    ),
    "attention_scores_window": Case(
        ops.attention_scores,
        (f32(N, 6, 5), _CACHE, *_TOKENS, Shape((M,))),
        lambda q, k, p, s, n, m: scores(q, k, p, s, m, _SCALE, 5, 0.7),
        {"scale": _SCALE, "window": 5, "softcap": 0.7},
        below=48,
        zero=3,
    ),
    "attention": Case(
        ops.attention,
        (f32(N, 6, 5), _CACHE, _CACHE, *_TOKENS, Shape((M,))),
        lambda q, k, v, p, s, n, m: attend(q, k, v, p, s, m),
        {"scale": _SCALE},
        below=48,
        zero=4,
    ),
    "unique": Case(ops.unique, (f32(N),), lambda x, n, m: np.unique(x)),
    "unique_i32": Case(ops.unique, (i32(N),), lambda x, n, m: np.unique(x), below=9),
    "nonzero": Case(ops.nonzero, (i32(N),), lambda x, n, m: np.array(np.nonzero(x)), below=3),
    "nonzero_cube": Case(ops.nonzero, (i32(N, 3, M),), lambda x, n, m: np.array(np.nonzero(x)), below=2),
    "nonzero_f32": Case(ops.nonzero, (f32(N, 2),), lambda x, n, m: np.array(np.nonzero(x))),
    "attention_values": Case(
        ops.attention_values, (f32(6, N, M), _CACHE, i32(N)), lambda w, v, s, n, m: mixed(w, v, s), zero=2
    ),
}
