"""Attention as a module of one operator call, its inputs, and what NumPy and the native device say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from webrelax.compiler import ops
from webrelax.compiler.executable import Executable
from webrelax.compiler.ir import FunctionBuilder, Module, ModuleBuilder, Shape, ShapeValue, Tensor
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.symbolic import Expr, Var, as_expr

Floats = npt.NDArray[np.float32]
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Attention:
    """Sizes and attributes; `tokens` is the number of queries, or None for a variable up to 128."""

    tokens: int | None = None
    heads: int = 4
    kv_heads: int = 2
    size: int = 64
    capacity: int = 520
    sequences: int = 1
    window: int = 0
    softcap: float = 0.0

    def module(self) -> Module:
        """`f(queries, keys, cached, positions, sequences, [m])` -> attention over m + tokens keys."""
        n: Expr = Var("n", 1, 128) if self.tokens is None else as_expr(self.tokens)
        past = Var("m", 0, self.capacity - 1)
        graph = FunctionBuilder("f")
        cache = Tensor((self.sequences, self.capacity, self.kv_heads, self.size), "f32")
        queries = graph.param("queries", Tensor((n, self.heads, self.size), "f32"))
        keys, values = graph.param("keys", cache), graph.param("cached", cache)
        ids = [graph.param(name, Tensor((n,), "i32")) for name in ("positions", "sequences")]
        graph.param("past", Shape((past,)))
        attributes = {"scale": self.size**-0.5, "window": self.window, "softcap": self.softcap}
        result = graph.op(ops.attention, queries, keys, values, *ids, ShapeValue((past + n,)), **attributes)
        builder = ModuleBuilder()
        builder.add_function(replace(graph.finish(result), requires=((past + n, as_expr(self.capacity)),)))
        return builder.finish()

    def inputs(self, past: int, tokens: int, seed: int = 0) -> Inputs:
        """Random values; the tokens follow on `past`, in sequences drawn at random (in order where that is one)."""
        rng = np.random.default_rng(seed)
        cache = (self.sequences, self.capacity, self.kv_heads, self.size)

        def normal(*shape: int) -> Floats:
            return rng.standard_normal(shape).astype(np.float32)

        # Scores are a few units large: peaked, but not on one key.
        return {
            "queries": 2 * normal(tokens, self.heads, self.size),
            "keys": normal(*cache),
            "cached": normal(*cache),
            "positions": np.arange(past, past + tokens, dtype=np.int32),
            "sequences": rng.integers(0, self.sequences, tokens).astype(np.int32),
            "past": (past,),
        }

    def expected(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Query by query, in double precision."""
        queries, keys, values = (inputs[name].astype(np.float64) for name in ("queries", "keys", "cached"))
        result = np.empty(queries.shape)
        for i, (position, sequence) in enumerate(zip(inputs["positions"], inputs["sequences"], strict=True)):
            first = max(0, position - self.window + 1) if self.window else 0
            for h in range(self.heads):
                seen = np.s_[sequence, first : position + 1, h // (self.heads // self.kv_heads)]
                scores = keys[seen] @ queries[i, h] * self.size**-0.5
                if self.softcap:
                    scores = self.softcap * np.tanh(scores / self.softcap)
                weights = np.exp(scores - scores.max())
                result[i, h] = weights @ values[seen] / weights.sum()
        return result


def run(executable: Executable, inputs: Inputs) -> Floats:
    """The result of `f` on the native device."""
    (result,) = Runner.of(executable).call("f", inputs).values()
    return result


def kernel_names(executable: Executable) -> Sequence[str]:
    return [kernel.source.name for kernel in executable.kernels]
