"""Frontends: from model files to weights and modules."""

from .gguf import SUPPORTED, GGUFFile, GGUFTensor, MetadataValue, open_gguf, require_supported
from .gguf_tokenizer import generation_config, tokenizer_config, tokenizer_files, tokenizer_json

__all__ = [
    "SUPPORTED",
    "GGUFFile",
    "GGUFTensor",
    "MetadataValue",
    "generation_config",
    "open_gguf",
    "require_supported",
    "tokenizer_config",
    "tokenizer_files",
    "tokenizer_json",
]
