"""The C++ VM's sources, and how they become web/vm.wasm."""

from .build import OUTPUT, build

__all__ = ["OUTPUT", "build"]
