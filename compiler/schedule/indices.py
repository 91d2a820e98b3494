"""Names parts of indices: what a loop does not change is computed before it, what several indices share once.

The last pass: names hide how an index is made from the symbolic engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..symbolic import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Opaque,
    Var,
    as_expr,
    bounds,
    maximum,
    minimum,
    variables,
)
from ..tir import Scalar
from ..tir.scalar import opaque_loads
from .body import Body
from .kernel import Block, For, If, Let, Statement
from .rewrite import map_loads, rebuild
from .walk import defined, map_own, own_expressions


def name_indices(block: Block, names: Body) -> Block:
    """The block with shared and invariant parts of its indices named."""
    result: list[Statement] = []
    for s in block:
        match s:
            case For(var, start, stop, step, body):
                before, inside = _out_of_loop(var, name_indices(body, names), names)
                result += [*before, For(var, start, stop, step, inside)]
            case If(condition, body):
                result.append(If(condition, name_indices(body, names)))
            case _:
                result.append(s)
    return _common(result, names)


def _worth_a_name(expr: Expr) -> bool:
    return not isinstance(expr, Const | Var | Opaque) and not any(True for _ in opaque_loads(expr))


class _Namer:
    """Lets for expressions, each once."""

    def __init__(self, names: Body, wish: str) -> None:
        self._names = names
        self._wish = wish
        self._given: dict[Expr, Var] = {}
        self.lets: list[Statement] = []

    def adopt(self, expr: Expr, var: Var) -> bool:
        """Takes a name that an expression has already; False if it has one from here."""
        return self._given.setdefault(expr, var) is var

    def name(self, expr: Expr) -> Var:
        if expr not in self._given:
            low, high = bounds(expr)
            if low is not None and high is not None:
                # Behind an edge, where nothing matters, bounds may contradict each other.
                high = max(high, low - 1)
            var = Var(self._names.name(self._wish), low, high)
            self.lets.append(Let(var, expr))
            self._given[expr] = var
        return self._given[expr]


def _apply(s: Statement, change: Callable[[Expr], Expr]) -> Statement:
    """The statement with every own index expression changed, those inside loads too."""

    def index(expr: Expr) -> Expr:
        return change(map_loads(expr, scalar))

    def scalar(node: Scalar) -> Scalar:
        return rebuild(node, scalar, index)

    return map_own(s, scalar, index)


def _out_of_loop(var: Var, body: Block, names: Body) -> tuple[list[Statement], Block]:
    namer = _Namer(names, "base")
    inside = {var.name, *defined(body)}
    moved: list[Statement] = []

    def invariant(expr: Expr) -> bool:
        return not any(v.name in inside for v in variables(expr)) and not any(True for _ in opaque_loads(expr))

    def change(expr: Expr) -> Expr:
        if invariant(expr):
            return namer.name(expr) if _worth_a_name(expr) else expr
        match expr:
            case Add(terms):
                fixed = [t for t in terms if not isinstance(t, Const) and invariant(t)]
                rest = sum((t if isinstance(t, Const) else change(t) for t in terms if t not in fixed), as_expr(0))
                total = sum(fixed, as_expr(0))
                return rest + (namer.name(total) if _worth_a_name(total) else total)
            case FloorDiv(a, b):
                return change(a) // change(b)
            case FloorMod(a, b):
                return change(a) % change(b)
            case Mul(coefficient, factors):
                result = as_expr(coefficient)
                for factor in factors:
                    result = result * change(factor)
                return result
            case Min(args):
                return minimum(*map(change, args))
            case Max(args):
                return maximum(*map(change, args))
        return expr

    kept: list[Statement] = []
    for s in body:
        if isinstance(s, Let) and isinstance(s.value, Expr) and invariant(s.value):
            moved.append(s)
            inside.discard(s.target.name)
        else:
            start = len(namer.lets)
            kept.append(_apply(s, change))
            moved += namer.lets[start:]
    return moved, tuple(kept)


def _base(expr: Expr) -> Expr:
    """The index without its constant."""
    if isinstance(expr, Add) and isinstance(expr.terms[-1], Const):
        return expr - expr.terms[-1]
    return expr


def _common(block: list[Statement], names: Body) -> Block:
    count = Counter(_base(e) for s in block for e in own_expressions(s) if _worth_a_name(e))
    namer = _Namer(names, "at")

    def change(expr: Expr) -> Expr:
        base = _base(expr)
        if count[base] < 2 or not _worth_a_name(base):
            return expr
        return namer.name(base) + (expr - base)

    result: list[Statement] = []
    for s in block:
        if (
            isinstance(s, Let)
            and isinstance(s.target, Var)
            and isinstance(s.value, Expr)
            and namer.adopt(s.value, s.target)
        ):
            result.append(s)
            continue
        start = len(namer.lets)
        changed = _apply(s, change)
        result += [*namer.lets[start:], changed]
    return tuple(result)
