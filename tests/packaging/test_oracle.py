"""The real model against an independent float32 reference, on the interpreter and on a native wgpu device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webrelax.packaging.engine import Backend, Engine, InterpreterBackend, NativeBackend, Stats
from webrelax.packaging.reader import Bundle, open_bundle
from webrelax.packaging.sampling import Sampling
from webrelax.packaging.text import Text

TOLERANCE = 0.02
BACKENDS: dict[str, Callable[[Bundle], Backend]] = {"interpreter": InterpreterBackend, "gpu": NativeBackend}


@pytest.fixture(scope="module")
def bundle(smollm2_site: Path) -> Bundle:
    return open_bundle(smollm2_site)


@pytest.fixture(scope="module")
def backends(bundle: Bundle) -> dict[str, Backend]:
    return {name: make(bundle) for name, make in BACKENDS.items()}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", BACKENDS)
def test_logits_and_greedy_tokens(
    bundle: Bundle, backends: dict[str, Backend], smollm2_oracle: dict[str, Any], name: str, number: int
) -> None:
    prompt = smollm2_oracle["prompts"][number]
    text = Text(bundle)
    assert text.encode(prompt["text"]) == prompt["ids"]
    engine = Engine(bundle, backends[name])
    logits = engine.prefill(prompt["ids"])
    assert np.abs(logits[prompt["top20"]] - prompt["logits"]).max() < TOLERANCE
    certain = certain_length(prompt["margins"])
    assert certain >= 5
    engine.cached.clear()
    made = engine.generate(prompt["ids"], certain, Sampling(), frozenset(), Stats())
    assert list(made) == prompt["greedy"][:certain]


# llama.cpp's own codes of 8 bits are 0.4 to 1.0 away from the reference on these prompts.
CPU = {"smollm2_site": 1.0, "smollm2_exact_site": TOLERANCE}


@pytest.fixture(scope="module", params=CPU)
def cpu(request: pytest.FixtureRequest) -> tuple[Bundle, Backend, float]:
    """The model on the CPU, and how far its logits may be off."""
    bundle = open_bundle(request.getfixturevalue(request.param), target="wasm")
    return bundle, NativeBackend(bundle), CPU[request.param]


@pytest.mark.parametrize("number", range(3))
def test_logits_on_the_cpu(cpu: tuple[Bundle, Backend, float], smollm2_oracle: dict[str, Any], number: int) -> None:
    bundle, backend, tolerance = cpu
    prompt = smollm2_oracle["prompts"][number]
    engine = Engine(bundle, backend)
    logits = engine.prefill(prompt["ids"])
    assert np.abs(logits[prompt["top20"]] - prompt["logits"]).max() < tolerance
    assert logits.argmax() == prompt["top20"][0]
    # Token by token the same kernels for one token give the same.
    engine.cached.clear()
    engine.prefill(prompt["ids"][:1])
    for token in prompt["ids"][1:]:
        logits = engine.decode(token)
    assert np.abs(logits[prompt["top20"]] - prompt["logits"]).max() < tolerance
    assert logits.argmax() == prompt["top20"][0]


def test_greedy_tokens_on_the_exact_cpu(smollm2_exact_site: Path, smollm2_oracle: dict[str, Any]) -> None:
    bundle = open_bundle(smollm2_exact_site)
    engine = Engine(bundle, NativeBackend(bundle))
    for prompt in smollm2_oracle["prompts"]:
        certain = certain_length(prompt["margins"])
        engine.cached.clear()
        made = engine.generate(prompt["ids"], certain, Sampling(), frozenset(), Stats())
        assert list(made) == prompt["greedy"][:certain]


def certain_length(margins: Sequence[float]) -> int:
    """How many greedy tokens two exact engines must share: those before the first near tie."""
    return next((at for at, margin in enumerate(margins) if margin < TOLERANCE), len(margins))


def test_the_oracle_has_the_three_prompts(smollm2_oracle: dict[str, Any]) -> None:
    assert len(smollm2_oracle["prompts"]) == 3


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 300])
def test_prompt_lengths_around_tiles_and_chunks(bundle: Bundle, backends: dict[str, Backend], length: int) -> None:
    prompt = long_prompt(bundle, length)
    a, b = (Engine(bundle, backends[name]).prefill(prompt) for name in BACKENDS)
    assert np.abs(a - b).max() < 1e-3


def test_a_second_turn_continues_from_the_cache(bundle: Bundle, backends: dict[str, Backend]) -> None:
    first, whole = long_prompt(bundle, 40), long_prompt(bundle, 75)
    expected = Engine(bundle, backends["interpreter"]).prefill(whole)
    engine = Engine(bundle, backends["gpu"])
    engine.prefill(first)
    # A reply that the second turn does not contain must leave no trace in the cache.
    for token in (11, 12, 13):
        engine.decode(token)
    before = len(engine.cached)
    logits = engine.prefill(whole)
    assert before == 43
    assert engine.cached == whole
    assert np.abs(logits - expected).max() < 1e-3


def test_a_long_prompt_against_transformers(bundle: Bundle, backends: dict[str, Backend], smollm2_path: Path) -> None:
    """600 tokens, five chunks: the last logits of Hugging Face's implementation on the dequantized weights."""
    import torch

    prompt = long_prompt(bundle, 600)
    with torch.no_grad():
        expected = reference_model(smollm2_path)(torch.tensor([prompt])).logits[0, -1].numpy()
    logits = Engine(bundle, backends["gpu"]).prefill(prompt)
    assert np.abs(logits - expected).max() < TOLERANCE


def long_prompt(bundle: Bundle, length: int) -> list[int]:
    """Real text of that many tokens."""
    readme = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
    ids = Text(bundle).encode(readme)
    assert len(ids) >= length
    return ids[:length]


def reference_model(path: Path) -> Any:
    """LlamaForCausalLM with the GGUF's weights, dequantized by the `gguf` package."""
    import gguf
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    heads, kv_heads, layers, hidden = 9, 3, 30, 576
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=hidden,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()

    def halves(weight: Any, count: int) -> Any:
        """GGUF's neighbouring rotary pairs back to Hugging Face's halves."""
        size = weight.shape[0] // count
        return weight.reshape(count, size // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)

    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
    }
    for layer in range(layers):
        for theirs, ours in names.items():
            weight = tensors[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):
                weight = halves(weight, heads if ours == "attn_q" else kv_heads)
            state[f"model.layers.{layer}.{theirs}.weight"] = weight
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict({name: torch.from_numpy(np.array(weight)) for name, weight in state.items()})
    return model
