"""A small random Llama as a GGUF file, written by the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, LAYERS, CONTEXT = 64, 4, 2, 96, 2, 128


def small_llama(
    path: Path, architecture: str = "llama", weight_type: str = "Q4_0", without: str = "", seed: int = 0
) -> Path:
    """Writes the model and returns its path. Norms are F32, the embedding Q8_0, the other matrices of `weight_type`."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    key = architecture
    for name, value in {
        "context_length": CONTEXT, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "rope.dimension_count": HIDDEN // HEADS,
    }.items():  # fmt: skip
        writer.add_uint32(f"{key}.{name}", value)
    writer.add_float32(f"{key}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{key}.rope.freq_base", 10000.0)
    tokens = _vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])
    writer.add_token_merges(["h e", "l l"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    kv = KV_HEADS * HIDDEN // HEADS
    shapes = {"token_embd.weight": (len(tokens), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,), "ffn_gate": (FEED_FORWARD, HIDDEN),
                "ffn_up": (FEED_FORWARD, HIDDEN), "ffn_down": (HIDDEN, FEED_FORWARD),
            }.items()
        }  # fmt: skip
    for name, shape in shapes.items():
        if name == without:
            continue
        values = rng.standard_normal(shape).astype(np.float32) * (1.0 if len(shape) == 1 else shape[-1] ** -0.5)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            continue
        kind = getattr(gguf.GGMLQuantizationType, "Q8_0" if name == "token_embd.weight" else weight_type)
        if weight_type == "Q6_K" and kind != gguf.GGMLQuantizationType.Q8_0:
            # Blocks of 256 in rows of 64 do not exist: raw bytes of the right size under the type's name.
            data = np.zeros((shape[0], 210), np.uint8)
        else:
            data = gguf.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _vocabulary() -> list[str]:
    """One special token, the 256 bytes in GPT-2's alphabet, and two merged tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    return ["<|end|>", *sorted(ByteLevel.alphabet()), "he", "ll"]
