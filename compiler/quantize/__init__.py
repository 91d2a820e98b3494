"""Weight formats: how quantized weights are stored in a bundle, and how they are decoded."""

from .decode import decode_program, decoder, dequantize
from .packers import FORMATS, SECTION_WORDS, BlockFormat, pack, packed_words, sections, unpack

__all__ = [
    "FORMATS",
    "SECTION_WORDS",
    "BlockFormat",
    "decode_program",
    "decoder",
    "dequantize",
    "pack",
    "packed_words",
    "sections",
    "unpack",
]
