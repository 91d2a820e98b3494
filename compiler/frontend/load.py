"""From a model file to a model object and the arrays of its weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import WebrelaxError
from ..quantize import FORMATS, pack
from . import nn
from .export import Decoder
from .gguf import GGUFFile, GGUFTensor, open_gguf, require_supported
from .llama import Llama, LlamaConfig

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LoadedModel:
    """A model and, for each of its parameters, a function that gives its stored array (f32, or packed u32 words)."""

    architecture: str
    model: Decoder
    context: int
    vocabulary: int
    weights: Mapping[str, Callable[[], Array]]


def load_gguf(path: str | os.PathLike[str], context: int | None = None) -> tuple[GGUFFile, LoadedModel]:
    """Opens a GGUF file and makes the model that it describes, for contexts of up to `context` tokens.

    Raises WebrelaxError where the architecture, a tensor's type or shape, or a size is not supported.
    """
    file = open_gguf(path)
    architecture = file.require("general.architecture", str)
    if architecture not in _ARCHITECTURES:
        supported = ", ".join(sorted(_ARCHITECTURES))
        raise file.error(f"the architecture is {architecture!r}, which is not supported; supported: {supported}")
    return file, _ARCHITECTURES[architecture](file, context)


def _positive(file: GGUFFile, key: str, default: int | None = None) -> int:
    value = file.optional(key, int) if default is not None else file.require(key, int)
    value = default if value is None else value
    assert value is not None
    if value < 1:
        raise file.error(f"{key!r} is {value}; it must be at least 1")
    return value


def _llama_config(file: GGUFFile) -> LlamaConfig:
    heads = _positive(file, "llama.attention.head_count")
    hidden = _positive(file, "llama.embedding_length")
    kv_heads = _positive(file, "llama.attention.head_count_kv", heads)
    head_size = _positive(file, "llama.rope.dimension_count", hidden // heads or 1)
    if hidden % heads or hidden // heads != head_size or head_size % 2:
        raise file.error(f"{heads} heads of {head_size} rotary dimensions do not fit an embedding of {hidden}")
    if heads % kv_heads:
        raise file.error(f"{heads} query heads cannot share {kv_heads} key heads")
    for key in ("llama.rope.scaling.type", "llama.rope.scaling.factor"):
        if file.metadata.get(key) not in (None, "none", 1.0):
            raise file.error(f"{key!r} is {file.metadata[key]!r}: scaled rotary embeddings are not supported")
    for name, what in (
        ("rope_freqs.weight", "rotary frequency factors"),
        ("blk.0.ffn_gate_inp.weight", "mixtures of experts"),
    ):
        if name in file.tensors:
            raise file.error(f"the tensor {name!r} means {what}, which are not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise file.error("the tensor 'token_embd.weight' is missing or no matrix")
    return LlamaConfig(
        vocabulary=embedding.shape[0],
        hidden=hidden,
        layers=_positive(file, "llama.block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        feed_forward=_positive(file, "llama.feed_forward_length"),
        norm_eps=file.require("llama.attention.layer_norm_rms_epsilon", float),
        rope_theta=file.optional("llama.rope.freq_base", float) or 10000.0,
        tied_embedding="output.weight" not in file.tensors,
        interleaved_rope=True,
    )


# GGUF's names of the parts of a block.
_LLAMA_BLOCK = {
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
_LLAMA_OUTSIDE = {
    "embedding.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "output.weight": "output.weight",
}


def _llama_tensor(parameter: str) -> str:
    if parameter.startswith("layers."):
        _, number, rest = parameter.split(".", 2)
        return f"blk.{number}.{_LLAMA_BLOCK[rest]}"
    return _LLAMA_OUTSIDE[parameter]


def _load_llama(file: GGUFFile, context: int | None) -> LoadedModel:
    trained = _positive(file, "llama.context_length")
    if context is not None and context > trained:
        raise file.error(f"the model was made for contexts of up to {trained} tokens, not {context}")
    bound = context or min(trained, 2048)
    config = _llama_config(file)
    if config.layers > len(file.tensors):
        raise file.error(f"'llama.block_count' is {config.layers}, but the file has only {len(file.tensors)} tensors")
    model = Llama(config, bound)
    weights: dict[str, Callable[[], Array]] = {}
    for name, parameter in model.named_parameters():
        if name in ("rope.cosines", "rope.sines"):
            weights[name] = _rope_table(config, bound, "cos" if name == "rope.cosines" else "sin")
        else:
            weights[name] = _bind(file, _llama_tensor(name), parameter)
    return LoadedModel("llama", model, bound, config.vocabulary, weights)


def _bind(file: GGUFFile, tensor_name: str, parameter: nn.Parameter) -> Callable[[], Array]:
    """Sets the parameter's format to that of the file's tensor; returns its reader."""
    tensor = file.tensors.get(tensor_name)
    if tensor is None:
        raise file.error(f"the tensor {tensor_name!r} is missing")
    try:
        require_supported(tensor)
    except WebrelaxError as error:
        raise file.error(str(error)) from None
    if tensor.shape != parameter.shape:
        raise file.error(f"the tensor {tensor_name!r} is {tensor.shape}, not {parameter.shape} as its metadata say")
    parameter.format = FORMATS[tensor.type]
    _, columns = parameter.rows_columns
    if parameter.format.group and columns % parameter.format.group:
        raise file.error(f"the tensor {tensor_name!r} has rows of {columns}, no multiple of {parameter.format.group}")
    return lambda: _stored(tensor, parameter)


def _stored(tensor: GGUFTensor, parameter: nn.Parameter) -> Array:
    import numpy as np

    packed = pack(parameter.format, tensor.bytes(), *parameter.rows_columns)
    return packed.view(np.float32).reshape(parameter.shape) if parameter.format.code == "f32" else packed


def _rope_table(config: LlamaConfig, context: int, function: str) -> Callable[[], Array]:
    """[context, head_size / 2] of cos or sin of position * theta^(-2 i / head_size), in double precision."""

    def table() -> Array:
        import numpy as np

        pairs = np.arange(config.head_size // 2, dtype=np.float64)
        angles = np.outer(np.arange(context), config.rope_theta ** (-2 * pairs / config.head_size))
        return np.asarray({"cos": np.cos, "sin": np.sin}[function](angles), np.float32)

    return table


_ARCHITECTURES: Mapping[str, Callable[[GGUFFile, int | None], LoadedModel]] = {"llama": _load_llama}
