"""Loads four elements at a time from read-only buffers whose loads are mostly part of such a four.

Of the others a component of a four is loaded.
"""

from __future__ import annotations

from dataclasses import replace

from ..symbolic import Expr, Opaque, as_int, is_multiple_of
from ..tir import Load, Scalar
from .kernel import Binding, Kernel
from .lower import product
from .nodes import VECTORS, Component, Lane, Vector
from .rewrite import deep, map_block
from .walk import loads_of, own_expressions, statements


def vectorize(kernel: Kernel) -> Kernel:
    """The kernel with aligned neighbouring loads replaced by lanes of one vector load."""
    chosen = {b.buffer.name for b in kernel.bindings if _comes_in_fours(kernel, b)}
    if not chosen:
        return kernel

    def scalar(node: Scalar) -> Scalar:
        match node:
            case Load(buffer, (index,), dtype) if buffer in chosen and dtype in VECTORS:
                at = as_int(index % 4)
                four = Load(buffer, (index // 4,), VECTORS[dtype])
                return Component(four, index % 4) if at is None else Lane(four, at)
            case Vector((Lane(vector, 0), Lane(b, 1), Lane(c, 2), Lane(d, 3))) if vector == b == c == d:
                return vector
        return node

    bindings = tuple(replace(b, vector=True) if b.buffer.name in chosen else b for b in kernel.bindings)
    body = map_block(kernel.body, lambda node: deep(node, scalar), lambda expr: expr)
    return replace(kernel, bindings=bindings, body=body)


def _comes_in_fours(kernel: Kernel, binding: Binding) -> bool:
    buffer = binding.buffer
    if binding.writable or binding.vector or buffer.dtype not in VECTORS:
        return False
    if not is_multiple_of(product(buffer.shape), 4):
        return False
    everything = list(statements(kernel.body))
    found = {load.indices[0] for s in everything for load in loads_of(s) if load.buffer == buffer.name}
    as_index = any(_loaded_as_index(expr, buffer.name) for s in everything for expr in own_expressions(s))
    if as_index:
        return False
    known = {index for index in found if as_int(index % 4) is not None}
    fours = len(known) - 2 * len({index // 4 for index in known})
    return bool(known) and fours >= len(found) - len(known)


def _loaded_as_index(expr: Expr, buffer: str) -> bool:
    from ..tir.scalar import opaque_loads

    return any(load.buffer == buffer for load in opaque_loads(expr)) or (
        isinstance(expr, Opaque) and isinstance(expr.payload, Load) and expr.payload.buffer == buffer
    )
