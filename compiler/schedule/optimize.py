"""What happens to every scheduled kernel before it becomes text, whatever made it."""

from __future__ import annotations

from dataclasses import replace

from ..symbolic import as_int
from ..tir import Binary, Cast, Index, Literal, Scalar
from .body import Body
from .hoist import hoist
from .indices import name_indices
from .kernel import Block, Kernel
from .rewrite import deep, map_block, map_loads
from .vectorize import vectorize
from .walk import names_in


def optimize(kernel: Kernel) -> Kernel:
    """The same kernel with constants folded, loads four wide where they can be, and repeated work done once."""
    kernel = vectorize(replace(kernel, body=_fold(kernel.body)))
    written = frozenset(b.buffer.name for b in kernel.bindings if b.writable)
    names = Body(names_in(kernel))
    return replace(kernel, body=name_indices(hoist(kernel.body, written, names), names))


def _fold(block: Block) -> Block:
    def scalar(node: Scalar) -> Scalar:
        return deep(node, _folded)

    return map_block(block, scalar, lambda expr: map_loads(expr, scalar))


def _folded(node: Scalar) -> Scalar:
    match node:
        case Cast(("i32" | "u32") as dtype, Index(expr)):
            value = as_int(expr)
            return node if value is None or value < 0 else Literal(value, dtype)
        case Binary("shl" | "shr", x, Literal(0)):
            return x
    return node
