"""Kernels as WGSL."""

from .emit import KernelSource, emit

__all__ = ["KernelSource", "emit"]
