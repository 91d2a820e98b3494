"""Sums of products with what stays the same along the sum taken out of it.

`sum(x * (code * scale + minimum))` over a group is `sum(x * code) * scale + sum(x) * minimum`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..symbolic import Expr, Var
from ..tir import Binary, Literal, Scalar, scalar_variables, substitute_scalar
from ..tir import nodes as all_nodes
from .body import Body
from .fields import fields_in_place
from .nodes import Dot, Local, Vector
from .pack import pack

MOST_PRODUCTS = 3
ONES = Vector((Literal(1.0, "f32"),) * 4)


@dataclass(frozen=True, slots=True)
class Product:
    """The product of all factors; `fixed` are the same along the sum."""

    varying: tuple[Scalar, ...]
    fixed: tuple[Scalar, ...] = ()


def products(node: Scalar, is_fixed: Callable[[Scalar], bool]) -> list[Product]:
    """Products whose sum the node is. A sum is taken apart only where that leaves something fixed in each product."""
    if is_fixed(node):
        return [Product((), (node,))]
    match node:
        case Binary("mul", a, b):
            left, right = products(a, is_fixed), products(b, is_fixed)
            if len(left) * len(right) <= MOST_PRODUCTS:
                return [Product(p.varying + q.varying, p.fixed + q.fixed) for p in left for q in right]
        case Binary("add", a, b):
            found = products(a, is_fixed) + products(b, is_fixed)
            if len(found) <= MOST_PRODUCTS and all(p.fixed for p in found):
                return found
    return [Product((node,))]


class Run:
    """A stretch of several sums, `outer` positions long, unrolled by `inner`, a multiple of 4.

    `sums` are (register, value of a position); values that differ in variables of `own` alone share the rest.
    """

    def __init__(self, body: Body, inner: int, outer: int, own: Sequence[Var]) -> None:
        self._body, self._inner, self._outer = body, inner, outer
        self._own = frozenset(own)

    def add(self, sums: Sequence[tuple[Local, Callable[[Expr], Scalar]]], first: Expr) -> None:
        """Adds the positions from `first` on to the registers."""
        steps = self._outer // self._inner
        w = Var(self._body.name("w"), 0, steps - 1)
        start = first + w * self._inner if steps > 1 else first
        partial: dict[tuple[tuple[Scalar, ...], ...], Local] = {}
        inside: list[tuple[Local, tuple[tuple[Scalar, ...], ...]]] = []
        after: list[tuple[Local, Local, tuple[Scalar, ...]]] = []
        for register, value in sums:
            for varying, fixed in self._products([fields_in_place(value(start + u)) for u in range(self._inner)], w):
                if not fixed:
                    inside.append((register, varying))
                    continue
                if varying not in partial:
                    partial[varying] = self._body.register("part", Literal(0.0, "f32"))
                    inside.append((partial[varying], varying))
                after.append((register, partial[varying], fixed))
        with self._body.loop("w", 0, steps) as at:
            for quad in range(0, self._inner, 4):
                for register, varying in inside:
                    four = [[substitute_scalar(f, {w: at}) for f in factors] for factors in varying[quad : quad + 4]]
                    self._body.assign(register, register + self._dot(four))
        for register, part, fixed in after:
            self._body.assign(register, register + product([part, *fixed]))

    def _products(
        self, values: Sequence[Scalar], w: Var
    ) -> list[tuple[tuple[tuple[Scalar, ...], ...], tuple[Scalar, ...]]]:
        """For each product of the values: what varies, position by position, and what is fixed."""
        common = frozenset.intersection(*(frozenset(all_nodes(value)) for value in values))

        def is_fixed(node: Scalar) -> bool:
            return node in common and w not in scalar_variables(node)

        split = [products(value, is_fixed) for value in values]
        like = [p.fixed for p in split[0]]
        if any([p.fixed for p in other] != like or not all(p.varying for p in other) for other in split):
            return [(tuple((value,) for value in values), ())]
        return [(tuple(s[at].varying for s in split), fixed) for at, fixed in enumerate(like)]

    def _dot(self, four: Sequence[Sequence[Scalar]]) -> Scalar:
        """The sum of four products: what is the same for all sums is multiplied first, and so only once."""
        shared = [[f for f in factors if not self._own & scalar_variables(f)] for factors in four]
        rest = [[f for f in factors if self._own & scalar_variables(f)] for factors in four]
        if not all(shared) or not all(rest):
            return Dot(pack([product(factors) for factors in four]), ONES)
        return Dot(pack(list(map(product, shared))), pack(list(map(product, rest))))


def product(factors: Sequence[Scalar]) -> Scalar:
    first, *others = factors
    for other in others:
        first = first * other
    return first
