"""A small Llama with random weights, and its logits in NumPy, without a cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import Module
from webrelax.compiler.ir.interpreter import Interpreter

from ..ops.cases import Array, rotate, scores, sigmoid, softmax
from .figure import normal

CONTEXT = 32
CONFIG = LlamaConfig(
    vocabulary=50,
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=8,
    feed_forward=48,
    norm_eps=1e-5,
    rope_theta=1e4,
    tied_embedding=True,
    interleaved_rope=True,
)


def random_weights(model: Llama) -> dict[str, Array]:
    """Matrices that keep the size of what they multiply, norms around 1, and the tables of angles."""
    weights = {}
    for at, (name, parameter) in enumerate(model.named_parameters()):
        values = normal(*parameter.shape, seed=at)
        weights[name] = values * parameter.shape[-1] ** -0.5 if values.ndim == 2 else 1 + 0.1 * values
    positions, half = weights["rope.cosines"].shape
    angles = np.outer(np.arange(positions), model.config.rope_theta ** (-np.arange(half) / half))
    weights |= {"rope.cosines": np.cos(angles), "rope.sines": np.sin(angles)}
    return {name: values.astype(np.float32) for name, values in weights.items()}


def reference_logits(config: LlamaConfig, weights: Mapping[str, Array], tokens: Array) -> Array:
    """[n, vocabulary]: what follows each token of one sequence."""
    n, head = len(tokens), config.head_size
    positions, one = np.arange(n), np.zeros(n, np.int32)
    tables = weights["rope.cosines"], weights["rope.sines"]

    def norm(x: Array, name: str) -> Array:
        scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.norm_eps) * weights[f"{name}.weight"]
        return scaled

    x = weights["embedding.weight"][tokens]
    for layer in range(config.layers):

        def product(value: Array, name: str, layer: int = layer) -> Array:
            result: Array = value @ weights[f"layers.{layer}.{name}.weight"].T
            return result

        h = norm(x, f"layers.{layer}.attention_norm")
        q, k, v = (product(h, f"attention.{part}").reshape(n, -1, head) for part in ("query", "key", "value"))
        q, k = (rotate(each, positions, *tables, interleaved=config.interleaved_rope) for each in (q, k))
        weight = softmax(scores(q, k[None], positions, one, n, head**-0.5))
        mixed = np.einsum("hij,jhd->ihd", weight, np.repeat(v, config.heads // config.kv_heads, axis=1))
        x = x + product(mixed.reshape(n, -1), "attention.output")
        h = norm(x, f"layers.{layer}.feed_forward_norm")
        gate = product(h, "feed_forward.gate")
        x = x + product(gate * sigmoid(gate) * product(h, "feed_forward.up"), "feed_forward.down")
    logits: Array = norm(x, "norm") @ weights["embedding.weight"].T
    return logits


class Session:
    """Steps of a model in the interpreter, with the cache between them."""

    def __init__(self, module: Module, weights: Mapping[str, Array], state: Iterable[tuple[int, ...]]) -> None:
        self.interpreter = Interpreter(module, weights)
        self.state = [np.zeros(shape, np.float32) for shape in state]

    def step(
        self, name: str, tokens: Iterable[int], positions: Iterable[int], sequences: Iterable[int], past: int
    ) -> Array:
        """The logits that the function gives for these tokens, each at its position of its sequence."""
        arrays = [np.array(list(each), np.int32) for each in (tokens, positions, sequences)]
        logits, *self.state = self.interpreter.call(name, *arrays, (past,), *self.state)
        result: Array = logits
        return result
