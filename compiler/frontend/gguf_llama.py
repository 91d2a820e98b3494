"""The Llama architecture in GGUF: what its metadata say, and what it calls its tensors."""

from __future__ import annotations

from .gguf import GGUFFile
from .gguf_settings import Settings
from .llama import LlamaConfig

_BLOCK = {
    "attention_norm.weight": "attn_norm.weight",
    "attention.query.weight": "attn_q.weight",
    "attention.key.weight": "attn_k.weight",
    "attention.value.weight": "attn_v.weight",
    "attention.output.weight": "attn_output.weight",
    "feed_forward_norm.weight": "ffn_norm.weight",
    "feed_forward.gate.weight": "ffn_gate.weight",
    "feed_forward.up.weight": "ffn_up.weight",
    "feed_forward.down.weight": "ffn_down.weight",
}
_OUTSIDE = {
    "embedding.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "output.weight": "output.weight",
}


def llama_tensor(parameter: str) -> str:
    """GGUF's name for a parameter of `llama.Llama`."""
    if parameter.startswith("layers."):
        _, number, rest = parameter.split(".", 2)
        return f"blk.{number}.{_BLOCK[rest]}"
    return _OUTSIDE[parameter]


def llama_settings(file: GGUFFile) -> tuple[LlamaConfig, int]:
    """The model's sizes, and the longest context that it was made for."""
    settings = Settings(file, "llama")
    vocabulary = len(file.require("tokenizer.ggml.tokens", tuple))
    settings.only("vocab_size", vocabulary, because="the number of the tokenizer's tokens")
    hidden = settings.count("embedding_length")
    heads = settings.count("attention.head_count")
    kv_heads = settings.count("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise file.error(f"{heads} query heads cannot share {kv_heads} key heads")
    head_size = settings.count("attention.key_length", hidden // heads or 1)
    if "llama.attention.key_length" not in file.metadata and head_size * heads != hidden:
        raise file.error(f"an embedding of {hidden} elements does not divide into {heads} heads")
    if head_size % 2:
        raise file.error(f"heads of {head_size} elements cannot be rotated in pairs; the size must be even")
    settings.only("attention.value_length", head_size, because="the size of a key")
    settings.only("rope.dimension_count", head_size, because="the size of a head")
    settings.only("rope.scaling.type", "none")
    settings.only("rope.scaling.factor", 1.0)
    settings.only("rope.scale_linear", 1.0)
    settings.only("expert_count", 0)
    settings.only("expert_used_count", 0)
    config = LlamaConfig(
        vocabulary=vocabulary,
        hidden=hidden,
        layers=settings.count("block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        feed_forward=settings.count("feed_forward_length"),
        norm_eps=settings.number("attention.layer_norm_rms_epsilon", least=1e-20),
        rope_theta=settings.number("rope.freq_base", least=1.0, default=10000.0),
        tied_embedding="output.weight" not in file.tensors,
        interleaved_rope=True,
    )
    trained = settings.count("context_length")
    settings.finish()
    return config, trained
