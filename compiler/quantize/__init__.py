"""Weight formats: how quantized weights are stored in a bundle, and how they are decoded."""

from .decode import code_at, decode_program, decoder, dequantize, group_values
from .formats import FORMATS, SECTION_WORDS, BlockFormat, packed_words, sections
from .packers import pack, unpack

__all__ = [
    "FORMATS",
    "SECTION_WORDS",
    "BlockFormat",
    "code_at",
    "decode_program",
    "decoder",
    "dequantize",
    "group_values",
    "pack",
    "packed_words",
    "sections",
    "unpack",
]
