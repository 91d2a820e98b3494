"""From a decoder model to a module: the functions that every language model has, and what their arguments are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ..ir import Function, FunctionBuilder, Module, ModuleBuilder, Shape, ShapeValue, Tensor
from ..symbolic import Expr, Var, as_expr
from . import nn


@dataclass(frozen=True)
class Step:
    """What one call brings: n new tokens at `positions` of `sequences` (i32[n] each).

    `length` is the shape [what the cache holds after them].
    """

    tokens: nn.Value
    positions: nn.Value
    sequences: nn.Value
    length: nn.Value


class Decoder(Protocol):
    """A language model: hidden state of a step, with its cache, and logits of the last token."""

    def cache_shapes(self, context: int) -> dict[str, tuple[int, ...]]:
        """The state tensors (f32) by name, zero at the start of a conversation."""
        ...

    def forward(self, step: Step, cache: dict[str, nn.Value]) -> tuple[nn.Value, dict[str, nn.Value]]:
        """Logits [1, vocabulary] of the last token, and the cache after the step."""
        ...


@dataclass(frozen=True)
class Exported:
    """A traced model: the module, the bounds it was made for, and which parameters are state, with their shapes."""

    module: Module
    context: int
    prefill_chunk: int
    state: Mapping[str, tuple[int, ...]]


def export_decoder(model: Decoder, context: int, prefill_chunk: int) -> Exported:
    """Traces `prefill` (1 <= n <= prefill_chunk tokens) and `decode` (one token); m tokens are in the cache before."""
    builder = ModuleBuilder()
    past = Var("m", 0, context - 1)
    chunk = Var("n", 1, prefill_chunk)
    builder.add_function(_trace(model, "prefill", chunk, past, context))
    builder.add_function(_trace(model, "decode", as_expr(1), past, context))
    return Exported(builder.finish(), context, prefill_chunk, model.cache_shapes(context))


def _trace(model: Decoder, name: str, n: Expr, past: Expr, context: int) -> Function:
    graph = FunctionBuilder(name)
    tokens, positions, sequences = (
        nn.Value(graph, graph.param(what, Tensor((n,), "i32"))) for what in ("tokens", "positions", "sequences")
    )
    graph.param("past", Shape((past,)))
    cache = {
        key: nn.Value(graph, graph.param(key, Tensor(shape, "f32")))
        for key, shape in model.cache_shapes(context).items()
    }
    step = Step(tokens, positions, sequences, nn.Value(graph, ShapeValue((past + n,))))
    logits, after = model.forward(step, cache)
    consumed = [(4 + at, 1 + at) for at in range(len(cache))]
    results = (logits.atom, *(after[key].atom for key in cache))
    function = graph.finish(*results, consumed=consumed)
    return replace(function, requires=((past + n, as_expr(context)),))
