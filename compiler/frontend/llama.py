"""The Llama architecture (arXiv 2302.13971): blocks of rotary grouped-query attention and a gated SiLU network."""

from __future__ import annotations

from dataclasses import dataclass

from .. import ops
from . import nn
from .export import Step


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes in elements. `interleaved_rope`: rotary pairs are neighbours (GGUF), not halves (Hugging Face)."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    norm_eps: float
    rope_theta: float
    tied_embedding: bool
    interleaved_rope: bool


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        self.query = nn.Linear(config.hidden, config.heads * config.head_size)
        self.key = nn.Linear(config.hidden, config.kv_heads * config.head_size)
        self.value = nn.Linear(config.hidden, config.kv_heads * config.head_size)
        self.output = nn.Linear(config.heads * config.head_size, config.hidden)
        self.config = config

    def forward(
        self, x: nn.Value, step: Step, rotate: Rope, keys: nn.Value, values: nn.Value
    ) -> tuple[nn.Value, nn.Value, nn.Value]:
        """[n, hidden] -> the same, with the caches after the step."""
        config, n = self.config, x.shape[0]
        q = rotate(self.query.forward(x).reshape(n, config.heads, config.head_size), step)
        k = rotate(self.key.forward(x).reshape(n, config.kv_heads, config.head_size), step)
        v = self.value.forward(x).reshape(n, config.kv_heads, config.head_size)
        keys = nn.apply(ops.kv_append, keys, k, step.positions, step.sequences, hint="keys")
        values = nn.apply(ops.kv_append, values, v, step.positions, step.sequences, hint="values")
        given = (keys, values, step.positions, step.sequences, step.length)
        mixed = nn.apply(ops.attention, q, *given, scale=config.head_size**-0.5, window=0, softcap=0.0)
        return self.output.forward(mixed.reshape(n, config.heads * config.head_size)), keys, values


class FeedForward(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        self.gate = nn.Linear(config.hidden, config.feed_forward)
        self.up = nn.Linear(config.hidden, config.feed_forward)
        self.down = nn.Linear(config.feed_forward, config.hidden)

    def forward(self, x: nn.Value) -> nn.Value:
        return self.down.forward(nn.apply(ops.silu, self.gate.forward(x)) * self.up.forward(x))


class Block(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        self.attention_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: nn.Value, step: Step, rotate: Rope, keys: nn.Value, values: nn.Value
    ) -> tuple[nn.Value, nn.Value, nn.Value]:
        mixed, keys, values = self.attention.forward(self.attention_norm.forward(x), step, rotate, keys, values)
        x = x + mixed
        return x + self.feed_forward.forward(self.feed_forward_norm.forward(x)), keys, values


class Rope(nn.Module):
    """Rotary position embedding from tables of cosines and sines, [context, head_size / 2] each."""

    def __init__(self, config: LlamaConfig, context: int) -> None:
        self.cosines = nn.Parameter(context, config.head_size // 2)
        self.sines = nn.Parameter(context, config.head_size // 2)
        self.interleaved = config.interleaved_rope

    def __call__(self, x: nn.Value, step: Step) -> nn.Value:
        tables = (self.cosines.read(x.graph), self.sines.read(x.graph))
        return nn.apply(ops.rope, x, step.positions, *tables, interleaved=self.interleaved)


class Llama(nn.Module):
    """A decoder; see `export.Decoder`."""

    def __init__(self, config: LlamaConfig, context: int) -> None:
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.rope = Rope(config, context)
        self.layers = [Block(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.output = self.embedding if config.tied_embedding else nn.Embedding(config.vocabulary, config.hidden)
        self.name_parameters()

    def cache_shapes(self, context: int) -> dict[str, tuple[int, ...]]:
        shape = (1, context, self.config.kv_heads, self.config.head_size)
        return {f"{what}_{at}": shape for at in range(self.config.layers) for what in ("keys", "values")}

    def forward(self, step: Step, cache: dict[str, nn.Value]) -> tuple[nn.Value, dict[str, nn.Value]]:
        x = self.embedding.forward(step.tokens)
        after = {}
        for at, layer in enumerate(self.layers):
            x, after[f"keys_{at}"], after[f"values_{at}"] = layer.forward(
                x, step, self.rope, cache[f"keys_{at}"], cache[f"values_{at}"]
            )
        x = nn.apply(ops.last_row, x)
        return self.output.project(self.norm.forward(x)), after
