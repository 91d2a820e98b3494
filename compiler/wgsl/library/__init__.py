"""The library of routines for WebGPU. `LIBRARY` is the table that compiling uses unless it is given another."""

from .attention import ATTENTION

LIBRARY = ATTENTION

__all__ = ["ATTENTION", "LIBRARY"]
