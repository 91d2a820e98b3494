"""From a GGUF file to a Llama: what is legal is read, and nothing that changes the computation goes unnoticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend.llama import Llama
from webrelax.compiler.frontend.load import load_gguf
from webrelax.compiler.target import WEBGPU

from .small_gguf import CONTEXT, small_llama, vocabulary

NAN, INF = float("nan"), float("inf")
EPS, BASE = "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"
HEADS, KV_HEADS, ROTARY = "llama.attention.head_count", "llama.attention.head_count_kv", "llama.rope.dimension_count"
TOKENS = len(vocabulary())


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def refusal(path: Path, context: int | None = None) -> str:
    with pytest.raises(WebrelaxError) as caught:
        load_gguf(path, context)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"llama.context_length": None}, "the metadata lack 'llama.context_length'"),
        ({"llama.context_length": -5}, "'llama.context_length' is -5; it must be at least 1"),
        ({"llama.context_length": 128.0}, "the value of 'llama.context_length' is 128.0; expected an integer"),
        ({"llama.block_count": 0}, "'llama.block_count' is 0"),
        ({"llama.block_count": 10**12}, "but the file has only 20 tensors"),
        ({"llama.block_count": 3}, "the tensor 'blk.2.attn_norm.weight' is missing"),
        ({"llama.block_count": 1}, "the tensor 'blk.1.attn_norm.weight' is no part of the model"),
        ({"llama.feed_forward_length": 0}, "'llama.feed_forward_length' is 0"),
        ({"llama.embedding_length": 63}, "an embedding of 63 elements does not divide into 4 heads"),
        ({HEADS: 0}, "'llama.attention.head_count' is 0"),
        ({HEADS: 64, KV_HEADS: 2, ROTARY: 1}, "heads of 1 elements cannot be rotated in pairs"),
        ({KV_HEADS: [2, 1]}, "'llama.attention.head_count_kv' differs between layers"),
        ({KV_HEADS: 3}, "4 query heads cannot share 3 key heads"),
        ({KV_HEADS: None}, "the tensor 'blk.0.attn_k.weight' is (32, 64), not (64, 64) as the metadata say"),
        ({ROTARY: 8}, "'llama.rope.dimension_count' is 8; only 16, the size of a head, is supported"),
        ({"llama.attention.value_length": 32}, "'llama.attention.value_length' is 32; only 16"),
        ({EPS: None}, f"the metadata lack '{EPS}'"),
        ({EPS: 0.0}, f"'{EPS}' is 0.0; it must be a finite number of at least 1e-20"),
        ({EPS: -1.0}, f"'{EPS}' is -1.0"),
        ({EPS: NAN}, f"'{EPS}' is nan"),
        ({EPS: INF}, f"'{EPS}' is inf"),
        ({BASE: 0.0}, f"'{BASE}' is 0.0; it must be a finite number of at least 1"),
        ({BASE: NAN}, f"'{BASE}' is nan"),
        ({"llama.rope.scaling.type": "yarn"}, "'llama.rope.scaling.type' is 'yarn'; only none is supported"),
        ({"llama.rope.scaling.factor": 4.0}, "'llama.rope.scaling.factor' is 4.0; only 1.0 is supported"),
        ({"llama.expert_count": 8}, "'llama.expert_count' is 8; only 0 is supported"),
        ({"llama.attention.sliding_window": 16}, "the metadata have 'llama.attention.sliding_window' (16), which may"),
        ({"llama.\n\x1b[2J": "\n" * 500}, "which may change what the model computes and is not supported"),
        (
            {"llama.vocab_size": 1000},
            f"'llama.vocab_size' is 1000; only {TOKENS}, the number of the tokenizer's tokens",
        ),
        (
            {"tokenizer.ggml.tokens": vocabulary()[:-1]},
            f"'token_embd.weight' is ({TOKENS}, 64), not ({TOKENS - 1}, 64)",
        ),
        ({"tokenizer.ggml.tokens": [*vocabulary(), "more"]}, f"is ({TOKENS}, 64), not ({TOKENS + 1}, 64)"),
        ({"tokenizer.ggml.tokens": None}, "the metadata lack 'tokenizer.ggml.tokens'"),
        ({"general.architecture": None}, "the metadata lack 'general.architecture'"),
        ({"general.architecture": "x\n" * 500}, "which is not supported; supported: llama"),
        ({"general.type": "adapter"}, "the file holds a thing of type 'adapter', not a model"),
        ({"split.count": 3}, "the file is one of 3 parts of a model; join them"),
        ({"general.quantization_version": 1}, "'general.quantization_version' is 1; only 2 is supported"),
    ],
)
def test_metadata_that_is_refused(tmp_path: Path, metadata: dict[str, Any], problem: str) -> None:
    assert problem in refusal(small_llama(tmp_path / "m.gguf", metadata=metadata))


@pytest.mark.parametrize(
    ("name", "shape", "problem"),
    [
        ("blk.0.attn_q.bias", (64,), "the tensor 'blk.0.attn_q.bias' (biases) is no part of the model"),
        ("output.bias", (TOKENS,), "(biases)"),
        ("rope_freqs.weight", (7,), "the tensor 'rope_freqs.weight' is F32 (7,), not F32 (8,)"),
        ("blk.1.ffn_gate_inp.weight", (4, 64), "(a mixture of experts)"),
        ("blk.1.attn_q_norm.weight", (16,), "the tensor 'blk.1.attn_q_norm.weight' is no part of the model"),
        ("a\n\x1b[31m" + "b" * 500, (8,), "is no part of the model"),
        ("output.weight", (TOKENS - 1, 64), f"the tensor 'output.weight' is ({TOKENS - 1}, 64), not ({TOKENS}, 64)"),
        ("output_norm.weight", (1, 64), "the tensor 'output_norm.weight' is (1, 64), not (64,)"),
        ("token_embd.weight", (64,), f"the tensor 'token_embd.weight' is (64,), not ({TOKENS}, 64)"),
        ("token_embd.weight", (TOKENS, 8, 8), "the tensor 'token_embd.weight' is"),
    ],
)
def test_tensors_that_are_refused(tmp_path: Path, name: str, shape: tuple[int, ...], problem: str) -> None:
    assert problem in refusal(small_llama(tmp_path / "m.gguf", tensors={name: zeros(*shape)}))


def test_rotary_factors_of_another_type(tmp_path: Path) -> None:
    factors = np.ones(8, np.float16)
    problem = refusal(small_llama(tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors}))
    assert "the tensor 'rope_freqs.weight' is F16 (8,), not F32 (8,)" in problem


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_rotary_factors_that_are_no_factors(tmp_path: Path, value: float) -> None:
    factors = np.array([1, 1, value, 1, 1, 1, 1, 1], np.float32)
    _, loaded = load_gguf(small_llama(tmp_path / "m.gguf", tensors={"rope_freqs.weight": factors}))
    with pytest.raises(WebrelaxError, match=r"'rope_freqs.weight' has a factor that is not a positive number"):
        loaded.weights["rope.cosines"]()


@pytest.mark.parametrize(
    "metadata",
    [
        {KV_HEADS: [2, 2], HEADS: [4, 4], "llama.feed_forward_length": [96, 96]},
        {ROTARY: None, BASE: None},
        {"llama.attention.key_length": 16, "llama.attention.value_length": 16},
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 1.0, "llama.expert_count": 0},
        {"llama.vocab_size": TOKENS, "general.type": "model", "split.count": 1, "general.quantization_version": 2},
        {"general.name": "../../\x1b[2J", "mistral.attention.sliding_window": 4},
    ],
)
def test_metadata_that_says_the_same(tmp_path: Path, metadata: dict[str, Any]) -> None:
    _, expected = load_gguf(small_llama(tmp_path / "plain.gguf"))
    _, loaded = load_gguf(small_llama(tmp_path / "m.gguf", metadata=metadata))
    assert isinstance(loaded.model, Llama)
    assert isinstance(expected.model, Llama)
    assert loaded.model.config == expected.model.config


def test_an_output_matrix_of_its_own(tmp_path: Path) -> None:
    _, loaded = load_gguf(small_llama(tmp_path / "m.gguf", tensors={"output.weight": zeros(TOKENS, 64)}))
    assert loaded.weights["output.weight"]().shape == (TOKENS, 64)


def test_contexts(tmp_path: Path) -> None:
    assert load_gguf(small_llama(tmp_path / "a.gguf"))[1].context == CONTEXT
    long = small_llama(tmp_path / "b.gguf", metadata={"llama.context_length": 2**40})
    assert load_gguf(long)[1].context == 2048
    assert "contexts of up to 128 tokens, not 129" in refusal(tmp_path / "a.gguf", 129)
    # 2 heads of 16 elements: 128 bytes a token.
    assert load_gguf(long, 2**20)[1].context == 2**20
    assert f"give a --context of at most {2**20}" in refusal(long, 2**20 + 1)
    assert f"give a --context of at most {2**20}" in refusal(long, 2**40)


def test_a_weight_larger_than_a_binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_llama(tmp_path / "m.gguf")
    monkeypatch.setattr("webrelax.compiler.frontend.load.WEBGPU", replace(WEBGPU, binding_size=TOKENS * 64))
    message = refusal(path, context=1)
    assert message.startswith(f"the tensor 'token_embd.weight' (Q8_0, ({TOKENS}, 64)) takes ")
    assert f"more than the {TOKENS * 64} of a WebGPU binding; quantize it to a smaller type" in message
