"""The library of routines for WebAssembly: `LIBRARY`, or `EXACT_LIBRARY` without codes in the place of activations."""

from .attention import ATTENTION
from .linear import FLOAT_LINEAR, QUANTIZED_LINEAR

EXACT_LIBRARY = (*ATTENTION, *FLOAT_LINEAR)
LIBRARY = (*QUANTIZED_LINEAR, *EXACT_LIBRARY)

__all__ = ["ATTENTION", "EXACT_LIBRARY", "FLOAT_LINEAR", "LIBRARY", "QUANTIZED_LINEAR"]
