"""Weight formats: how quantized weights are stored in a bundle, and how they are decoded."""

from .decode import code_at, decode_program, decoder, dequantize, group_values
from .packers import FORMATS, SECTION_WORDS, BlockFormat, pack, packed_words, sections, unpack

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
