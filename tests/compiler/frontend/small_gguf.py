"""A small random Llama as a GGUF file, written by the `gguf` package, and files that differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, LAYERS, CONTEXT = 64, 4, 2, 96, 2, 128

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_VALUE_TYPES = {
    bool: gguf.GGUFValueType.BOOL,
    int: gguf.GGUFValueType.INT64,
    float: gguf.GGUFValueType.FLOAT32,
    str: gguf.GGUFValueType.STRING,
    list: gguf.GGUFValueType.ARRAY,
}


def small_llama(
    path: Path,
    architecture: str = "llama",
    weight_type: str = "Q4_0",
    without: str = "",
    seed: int = 0,
    metadata: Mapping[str, Any] = _NOTHING,
    tensors: Mapping[str, npt.NDArray[np.floating[Any]]] = _NOTHING,
) -> Path:
    """Writes the model and returns its path. Norms are F32, the embedding Q8_0, the other matrices of `weight_type`.

    `metadata` adds or replaces values, None takes one away; `tensors` adds or replaces tensors, stored as they are.
    """
    writer = gguf.GGUFWriter(path, architecture)
    values = {**_metadata(architecture), **metadata}
    writer.kv_data = [{key: gguf.GGUFValue(v, _VALUE_TYPES[type(v)]) for key, v in values.items() if v is not None}]
    shapes = {name: shape for name, shape in _shapes().items() if name != without and name not in tensors}
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        random = rng.standard_normal(shape).astype(np.float32) * (1.0 if len(shape) == 1 else shape[-1] ** -0.5)
        if len(shape) == 1:
            writer.add_tensor(name, random)
            continue
        kind = getattr(gguf.GGMLQuantizationType, "Q8_0" if name == "token_embd.weight" else weight_type)
        if weight_type == "IQ2_XXS" and kind != gguf.GGMLQuantizationType.Q8_0:
            # Blocks of 256 in rows of 64 do not exist: raw bytes of the right size under the type's name.
            data = np.zeros((shape[0], 66), np.uint8)
        else:
            data = gguf.quantize(random, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata(architecture: str) -> dict[str, Any]:
    tokens = vocabulary()
    sizes = {
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.dimension_count": HIDDEN // HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    tokenizer = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": [3, *[1] * (len(tokens) - 1)],
        "merges": ["h e", "l l"],
        "eos_token_id": 0,
        "bos_token_id": 0,
    }
    return {
        "general.architecture": architecture,
        **{f"{architecture}.{name}": value for name, value in sizes.items()},
        **{f"tokenizer.ggml.{name}": value for name, value in tokenizer.items()},
    }


def _shapes() -> dict[str, tuple[int, ...]]:
    kv = KV_HEADS * HIDDEN // HEADS
    block = {
        "attn_norm": (HIDDEN,),
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (FEED_FORWARD, HIDDEN),
        "ffn_up": (FEED_FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FEED_FORWARD),
    }
    return {
        "token_embd.weight": (len(vocabulary()), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        **{f"blk.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in block.items()},
    }


def vocabulary() -> list[str]:
    """One special token, the 256 bytes in GPT-2's alphabet, and two merged tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    return ["<|end|>", *sorted(ByteLevel.alphabet()), "he", "ll"]
