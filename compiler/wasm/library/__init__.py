"""The library of routines for WebAssembly. `LIBRARY` is the table that compiling uses unless it is given another."""

from .attention import ATTENTION
from .linear import QUANTIZED_LINEAR

LIBRARY = (*ATTENTION, *QUANTIZED_LINEAR)
# Without codes of 8 bits in the place of activations.
EXACT_LIBRARY = ATTENTION

__all__ = ["ATTENTION", "EXACT_LIBRARY", "LIBRARY", "QUANTIZED_LINEAR"]
