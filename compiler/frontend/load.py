"""From a model file to a model object and the arrays of its weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ..errors import WebrelaxError
from ..quantize import FORMATS, pack, packed_words
from ..target import WEBGPU
from . import nn
from .export import Decoder
from .gguf import GGUFFile, GGUFTensor, open_gguf, quote, require_supported
from .gguf_llama import llama_settings, llama_tensor
from .llama import Llama, LlamaConfig

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_DEFAULT_CONTEXT = 2048

# What the rotary frequencies are divided by: Llama 3's scaling to long contexts.
_ROPE_FACTORS = "rope_freqs.weight"

# What a tensor that no part of a model reads stands for, by how its name ends.
_NOT_SUPPORTED = {
    ".bias": "biases",
    "ffn_gate_inp.weight": "a mixture of experts",
}


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
    _check_whole(file)
    architecture = file.require("general.architecture", str)
    if architecture not in _ARCHITECTURES:
        supported = ", ".join(sorted(_ARCHITECTURES))
        raise file.error(f"the architecture is {quote(architecture)}, which is not supported; supported: {supported}")
    return file, _ARCHITECTURES[architecture](file, context)


def _check_whole(file: GGUFFile) -> None:
    """Refuses files that hold something else than one whole model."""
    kind = file.optional("general.type", str)
    if kind not in (None, "model"):
        raise file.error(f"the file holds a thing of type {quote(kind)}, not a model")
    parts = file.optional("split.count", int)
    if parts is not None and parts > 1:
        raise file.error(f"the file is one of {parts} parts of a model; join them with `llama-gguf-split --merge`")
    version = file.optional("general.quantization_version", int)
    if version not in (None, 2):
        raise file.error(f"'general.quantization_version' is {version}; only 2 is supported: convert the model again")


def _load_llama(file: GGUFFile, context: int | None) -> LoadedModel:
    config, trained = llama_settings(file)
    if context is not None and context > trained:
        raise file.error(f"the model was made for contexts of up to {trained} tokens, not {context}")
    bound = context or min(trained, _DEFAULT_CONTEXT)
    if config.layers > len(file.tensors):
        raise file.error(f"'llama.block_count' is {config.layers}, but the file has only {len(file.tensors)} tensors")
    model = Llama(config, bound)
    _check_cache(file, model, bound)
    factors = _rope_factors(file, config) if _ROPE_FACTORS in file.tensors else None
    weights = {
        "rope.cosines": _rope_table(config, bound, "cos", factors),
        "rope.sines": _rope_table(config, bound, "sin", factors),
    }
    stored = {name: parameter for name, parameter in model.named_parameters() if name not in weights}
    _refuse_others(file, {_ROPE_FACTORS, *(llama_tensor(name) for name in stored)})
    for name, parameter in stored.items():
        weights[name] = _bind(file, llama_tensor(name), parameter)
    return LoadedModel("llama", model, bound, config.vocabulary, weights)


def _check_cache(file: GGUFFile, model: Decoder, context: int) -> None:
    for shape in model.cache_shapes(context).values():
        if prod(shape) * 4 > WEBGPU.binding_size:
            most = WEBGPU.binding_size // (prod(shape) * 4 // context)
            raise file.error(
                f"the cache of a layer takes {prod(shape) * 4} bytes for a context of {context} tokens, more than the"
                f" {WEBGPU.binding_size} of a WebGPU binding; give a --context of at most {most}"
            )


def _refuse_others(file: GGUFFile, known: set[str]) -> None:
    """Refuses tensors that the model does not read: without them it would compute something else."""
    for name in file.tensors:
        if name not in known:
            meaning = next((f" ({what})" for end, what in _NOT_SUPPORTED.items() if name.endswith(end)), "")
            raise file.error(
                f"the tensor {quote(name)}{meaning} is no part of the model that the metadata describe, and is not"
                " supported"
            )


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
        raise file.error(f"the tensor {tensor_name!r} is {tensor.shape}, not {parameter.shape} as the metadata say")
    parameter.format = FORMATS[tensor.type]
    size = 4 * packed_words(parameter.format, *parameter.rows_columns)
    if size > WEBGPU.binding_size:
        raise file.error(
            f"the tensor {tensor_name!r} ({tensor.type}, {tensor.shape}) takes {size} bytes, more than the"
            f" {WEBGPU.binding_size} of a WebGPU binding; quantize it to a smaller type, or take a smaller model"
        )
    return lambda: _stored(tensor, parameter)


def _stored(tensor: GGUFTensor, parameter: nn.Parameter) -> Array:
    import numpy as np

    packed = pack(parameter.format, tensor.bytes(), *parameter.rows_columns)
    return packed.view(np.float32).reshape(parameter.shape) if parameter.format.code == "f32" else packed


def _rope_factors(file: GGUFFile, config: LlamaConfig) -> Callable[[], Array]:
    """Reads the factors, f32[head_size / 2]."""
    tensor = file.tensors[_ROPE_FACTORS]
    if tensor.type != "F32" or tensor.shape != (config.head_size // 2,):
        raise file.error(
            f"the tensor {_ROPE_FACTORS!r} is {tensor.type} {tensor.shape}, not F32 {(config.head_size // 2,)}"
        )

    def read() -> Array:
        import numpy as np

        factors = np.frombuffer(tensor.bytes(), "<f4")
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise file.error(f"the tensor {_ROPE_FACTORS!r} has a factor that is not a positive number")
        return factors

    return read


def _rope_table(
    config: LlamaConfig, context: int, function: str, factors: Callable[[], Array] | None
) -> Callable[[], Array]:
    """[context, head_size / 2] of cos or sin of position * theta^(-2 i / head_size) / factors[i], in doubles."""

    def table() -> Array:
        import numpy as np

        pairs = np.arange(config.head_size // 2, dtype=np.float64)
        frequencies = config.rope_theta ** (-2 * pairs / config.head_size)
        if factors is not None:
            frequencies = frequencies / factors()
        angles = np.outer(np.arange(context), frequencies)
        return np.asarray({"cos": np.cos, "sin": np.sin}[function](angles), np.float32)

    return table


_ARCHITECTURES: Mapping[str, Callable[[GGUFFile, int | None], LoadedModel]] = {"llama": _load_llama}
