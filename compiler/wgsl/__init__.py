"""Kernels as WGSL."""

from .emit import emit

__all__ = ["emit"]
