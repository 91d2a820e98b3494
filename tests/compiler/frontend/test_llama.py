"""The Llama definition against Hugging Face `transformers` with small random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig as ReferenceConfig
from transformers import LlamaForCausalLM

from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.frontend.load import load_gguf
from webrelax.compiler.ir import Module, verify
from webrelax.compiler.ir.interpreter import Interpreter, ShapeMismatch
from webrelax.compiler.pipeline import lower

from ..ops.cases import Array
from .small_gguf import CONTEXT as FILE_CONTEXT
from .small_gguf import FEED_FORWARD, HEADS, HIDDEN, KV_HEADS, LAYERS, small_llama, vocabulary

VOCABULARY, CONTEXT, CHUNK, THETA = 96, 37, 9, 5000.0
SIZES = {"vocabulary": 96, "hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_size": 16, "feed_forward": 88}
PARTS = {
    "attention_norm": "input_layernorm", "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj", "attention.output": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm", "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj",
}  # fmt: skip
TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, VOCABULARY, 15)]


def reference_model(tied: bool, **sizes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = ReferenceConfig(
        **{
            "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 88, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied,
            "rope_parameters": {"rope_type": "default", "rope_theta": THETA}, "attn_implementation": "eager", **sizes,
        }
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms away from 1, and weights large enough for attention to be sharp.
            torch.nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.2)
    return model


def reference_logits(model: LlamaForCausalLM, tokens: Sequence[int]) -> Array:
    with torch.no_grad():
        logits: Array = model(torch.tensor([list(tokens)])).logits[0].numpy()
    return logits


def neighbours(weight: Array, heads: int) -> Array:
    """Rows of a projection in the order in which the pairs that rotate together are neighbours, as llama.cpp does."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def weights_of(model: LlamaForCausalLM, config: LlamaConfig) -> dict[str, Array]:
    given = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    weights = {"embedding.weight": given["model.embed_tokens.weight"], "norm.weight": given["model.norm.weight"]}
    if not config.tied_embedding:
        weights["output.weight"] = given["lm_head.weight"]
    for layer in range(config.layers):
        for own, theirs in PARTS.items():
            weight = given[f"model.layers.{layer}.{theirs}.weight"]
            if config.interleaved_rope and own in ("attention.query", "attention.key"):
                weight = neighbours(weight, config.heads if own == "attention.query" else config.kv_heads)
            weights[f"layers.{layer}.{own}.weight"] = weight
    angles = np.outer(np.arange(CONTEXT), THETA ** (-np.arange(0, config.head_size, 2) / config.head_size))
    tables = {"rope.cosines": np.cos(angles), "rope.sines": np.sin(angles)}
    return {**weights, **{name: table.astype(np.float32) for name, table in tables.items()}}


class Session:
    """A conversation: the cache, and how far it is filled."""

    def __init__(self, module: Module, weights: Mapping[str, Array], state: Mapping[str, tuple[int, ...]]) -> None:
        for weight in weights.values():
            weight.flags.writeable = False
        self.interpreter = Interpreter(module, weights, remember_constants=True)
        # What is behind the end of the cache must not matter.
        self.state = [np.full(shape, 1e3, np.float32) for shape in state.values()]
        self.past = 0

    def step(self, tokens: Sequence[int], function: str = "prefill") -> Array:
        """The logits of the last token."""
        n = len(tokens)
        positions = np.arange(self.past, self.past + n, dtype=np.int32)
        arguments = [np.array(tokens, np.int32), positions, np.zeros(n, np.int32), (self.past,), *self.state]
        logits, *self.state = self.interpreter.call(function, *arguments)
        self.past += n
        result: Array = logits[0]
        return result


def exported(interleaved: bool, tied: bool) -> tuple[dict[str, Module], dict[str, Array], Any, LlamaForCausalLM]:
    config = LlamaConfig(
        **SIZES, norm_eps=1e-5, rope_theta=THETA, tied_embedding=tied, interleaved_rope=interleaved
    )  # fmt: skip
    reference = reference_model(tied)
    model = Llama(config, CONTEXT)
    weights = weights_of(reference, config)
    assert {name: p.shape for name, p in model.named_parameters()} == {n: w.shape for n, w in weights.items()}
    export = export_decoder(model, CONTEXT, CHUNK)
    return dict(lower(export.module)), weights, export.state, reference


@pytest.mark.parametrize(("interleaved", "tied"), [(False, True), (True, False)])
def test_against_transformers(interleaved: bool, tied: bool) -> None:
    """One chunk, several chunks, then token by token: the logits of the last token of each step."""
    stages, weights, state, reference = exported(interleaved, tied)
    expected = reference_logits(reference, TOKENS)
    assert np.ptp(expected) > 1
    for stage in ("start", "lower_shapes"):
        verify(stages[stage])
        for chunks in ([9], [3, 1, 5, 2], [1, 8, 6]):
            session = Session(stages[stage], weights, state)
            for size in chunks:
                logits = session.step(TOKENS[session.past : session.past + size])
                np.testing.assert_allclose(logits, expected[session.past - 1], atol=1e-4)
            while session.past < len(TOKENS):
                logits = session.step(TOKENS[session.past : session.past + 1], "decode")
                np.testing.assert_allclose(logits, expected[session.past - 1], atol=1e-4)


def test_up_to_the_bound_and_not_beyond() -> None:
    stages, weights, state, reference = exported(True, True)
    session = Session(stages["lower_shapes"], weights, state)
    tokens = (TOKENS * 3)[:CONTEXT]
    while session.past < CONTEXT - 1:
        session.step(tokens[session.past : min(session.past + CHUNK, CONTEXT - 1)])
    logits = session.step(tokens[-1:], "decode")
    np.testing.assert_allclose(logits, reference_logits(reference, tokens)[-1], atol=2e-4)
    with pytest.raises(ShapeMismatch, match=r"decode: past, dimension 0: m = 37 is outside 0\.\.36"):
        session.step([1], "decode")
    session.past = 30
    with pytest.raises(ShapeMismatch, match=r"prefill: m \+ n = 38 is more than 37 = 37"):
        session.step(tokens[:8])
    with pytest.raises(ShapeMismatch, match=r"prefill: tokens, dimension 0: n = 10 is outside 1\.\.9"):
        session.step(tokens[:10])


@pytest.mark.parametrize("scaled", [False, True])
def test_a_gguf_file_against_transformers_on_its_dequantized_weights(tmp_path: Path, scaled: bool) -> None:
    scaling = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    } if scaled else {"rope_type": "default", "rope_theta": 10000.0}  # fmt: skip
    reference = reference_model(
        True, vocab_size=len(vocabulary()), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, intermediate_size=FEED_FORWARD, max_position_embeddings=FILE_CONTEXT,
        rope_parameters=scaling,
    )  # fmt: skip
    size = HIDDEN // HEADS
    factors = 10000.0 ** (-np.arange(0, size, 2) / size) / reference.model.rotary_emb.inv_freq.numpy()
    assert (np.ptp(factors) > 1) == scaled
    tensors = {"rope_freqs.weight": factors.astype(np.float32)} if scaled else {}
    path = small_llama(tmp_path / "model.gguf", weight_type="Q4_1", tensors=tensors)
    _, loaded = load_gguf(path)
    export = export_decoder(loaded.model, loaded.context, CHUNK)
    tokens = [t % loaded.vocabulary for t in TOKENS]
    arrays = {name: read() for name, read in loaded.weights.items()}
    *_, (_, module) = lower(export.module)
    session = Session(module, arrays, export.state)
    for at in range(0, len(tokens), CHUNK):
        logits = session.step(tokens[at : at + CHUNK])

    assign(reference, path)
    np.testing.assert_allclose(logits, reference_logits(reference, tokens)[-1], atol=1e-4)


FILE_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def assign(model: LlamaForCausalLM, path: Path) -> None:
    """Gives the reference the dequantized weights of a GGUF file."""
    parameters = dict(model.named_parameters())
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        match tensor.name.split("."):
            case ["blk", layer, part, "weight"]:
                name = f"model.layers.{layer}.{FILE_PARTS[part]}.weight"
                if part in ("attn_q", "attn_k"):
                    heads = HEADS if part == "attn_q" else KV_HEADS
                    pairs = values.reshape(heads, -1, 2, values.shape[-1])
                    values = pairs.swapaxes(1, 2).reshape(values.shape)
            case ["rope_freqs", _]:
                continue
            case ["token_embd", _]:
                name = "model.embed_tokens.weight"
            case _:
                name = "model.norm.weight"
        with torch.no_grad():
            parameters[name].copy_(torch.tensor(values.reshape(parameters[name].shape)))
