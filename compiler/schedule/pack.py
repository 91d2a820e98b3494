"""Four scalars of one shape as one vector expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..tir import Binary, Bitcast, Cast, Compare, Scalar, Select, Unary
from .nodes import VECTORS, Vector

LANEWISE = ("add", "sub", "mul", "div", "and", "or", "xor")


def pack(nodes: Sequence[Scalar]) -> Scalar:
    """The vector of four scalars of one type (f32, u32 or i32), computed as vectors where they are computed alike."""
    first = nodes[0]
    if len(set(nodes)) > 1 and all(type(n) is type(first) for n in nodes):
        match first:
            case Binary(op) if op in LANEWISE and all(n.op == op for n in nodes if isinstance(n, Binary)):
                return Binary(op, pack(_field(nodes, "left")), pack(_field(nodes, "right")))
            case Cast(dtype, x) | Bitcast(dtype, x) if dtype in VECTORS and x.dtype in VECTORS:
                operands = _field(nodes, "operand")
                if all(n.dtype == dtype for n in nodes) and all(o.dtype == x.dtype for o in operands):
                    return replace(first, type=VECTORS[dtype], operand=pack(operands))
            case Select(Compare(op)) if all(isinstance(c, Compare) and c.op == op for c in _field(nodes, "condition")):
                tests = _field(nodes, "condition")
                # One test for all four picks whole vectors.
                test = Compare(op, pack(_field(tests, "left")), pack(_field(tests, "right")))
                return Select(
                    tests[0] if len(set(tests)) == 1 else test, pack(_field(nodes, "yes")), pack(_field(nodes, "no"))
                )
            case Unary("neg") if all(n.op == "neg" for n in nodes if isinstance(n, Unary)):
                return Unary("neg", pack(_field(nodes, "operand")))
    return Vector(tuple(nodes))


def _field(nodes: Sequence[Scalar], name: str) -> list[Scalar]:
    return [getattr(node, name) for node in nodes]
