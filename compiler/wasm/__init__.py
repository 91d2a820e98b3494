"""Kernels as C for WebAssembly with 128-bit SIMD, and the module that holds them."""

from .build import build_module, build_relaxed_module
from .emit import emit, module_source

__all__ = ["build_module", "build_relaxed_module", "emit", "module_source"]
