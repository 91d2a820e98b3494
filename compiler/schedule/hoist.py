"""Names what is computed more than once: invariants move out of loops, common subexpressions are computed once a block.

Only pure expressions move: they read no register, no workgroup memory and no buffer that the kernel writes. Nothing
moves out of an `If`.
"""

from __future__ import annotations

from ..symbolic import Expr, Opaque, Var, map_opaque, variables
from ..tir import Cast, Index, Literal, Load, Scalar, Unary
from ..tir.scalar import opaque_loads
from .body import Body
from .kernel import Block, For, If, Let, Register, Statement
from .nodes import Element, Lane, Local, Vector
from .rewrite import loaded, map_block, map_loads, rebuild
from .walk import defined, map_own, names_of, operands, own_scalars


def hoist(block: Block, written: frozenset[str], names: Body) -> Block:
    """The block with repeated work named. `written` are the buffers that the kernel writes; `names` gives new names."""
    return _Pass(written, names, _registers(block)).block(block)


def _registers(block: Block) -> frozenset[str]:
    found: set[str] = set()
    for s in block:
        match s:
            case Register(name):
                found.add(name)
            case For(body=body) | If(body=body):
                found |= _registers(body)
    return frozenset(found)


class _Pass:
    def __init__(self, written: frozenset[str], names: Body, registers: frozenset[str]) -> None:
        self._written = written
        self._names = names
        self._registers = registers

    def block(self, block: Block) -> Block:
        result: list[Statement] = []
        for s in block:
            match s:
                case For(var, start, stop, step, body):
                    before, inside = self._out_of_loop(var, self.block(body))
                    result += [*before, For(var, start, stop, step, inside)]
                case If(condition, body):
                    result.append(If(condition, self.block(body)))
                case _:
                    result.append(s)
        return _Common(self).run(result)

    # --- which expressions may move

    def pure(self, node: Scalar) -> bool:
        match node:
            case Element():
                return False
            case Local(name):
                return name not in self._registers
            case Load(buffer) if buffer in self._written:
                return False
        return all(map(self.pure, operands(node)))

    def new(self, node: Scalar, bounds: Opaque | None = None) -> Let:
        """A let for a value; for one that is an index, with the index's bounds."""
        name = self._names.name(_wish(node))
        target = Local(name, node.dtype) if bounds is None else Var(name, bounds.lower, bounds.upper)
        return Let(target, node)

    # --- loops

    def _out_of_loop(self, var: Var, body: Block) -> tuple[list[Statement], Block]:
        inside = {var.name, *defined(body)}
        moved: list[Statement] = []
        taken: dict[tuple[Scalar, bool], Local | Var] = {}

        def invariant(node: Scalar) -> bool:
            return self.pure(node) and not inside & names_of(node)

        def fixed(expr: Expr) -> bool:
            return all(map(invariant, opaque_loads(expr))) and not inside & {v.name for v in variables(expr)}

        def take(node: Scalar, bounds: Opaque | None = None) -> Local | Var:
            if (node, bounds is None) not in taken:
                let = self.new(node, bounds)
                moved.append(let)
                taken[node, bounds is None] = let.target
            return taken[node, bounds is None]

        def scalar(node: Scalar) -> Scalar:
            if invariant(node) and worth_a_name(node):
                local = take(node)
                assert isinstance(local, Local)
                return local
            return rebuild(node, scalar, index)

        def index(expr: Expr) -> Expr:
            def change(opaque: Opaque) -> Expr:
                payload = loaded(opaque)
                if invariant(payload):
                    var = take(payload, opaque)
                    assert isinstance(var, Var)
                    return var
                return map_loads(opaque, lambda load: rebuild(load, scalar, index))

            return map_opaque(expr, change)

        kept: list[Statement] = []
        for s in body:
            match s:
                case Let(target, value) if isinstance(value, Scalar) and invariant(value):
                    moved.append(s)
                    inside.discard(target.name)
                case Let(target, value) if isinstance(value, Expr) and fixed(value):
                    moved.append(s)
                    inside.discard(target.name)
                case Let(target, value):
                    kept.append(Let(target, scalar(value) if isinstance(value, Scalar) else index(value)))
                case _:
                    kept.append(map_own(s, scalar, index))
        return moved, tuple(kept)


class _Common:
    """Common subexpressions of the statements of one block, those inside nested statements left alone."""

    def __init__(self, outer: _Pass) -> None:
        self._outer = outer
        self._count: dict[Scalar, int] = {}
        self._known: dict[Scalar, Local] = {}
        self._indices: dict[Scalar, Var] = {}
        self._renamed: dict[str, Local] = {}
        self._out: list[Statement] = []

    def run(self, block: list[Statement]) -> Block:
        for s in block:
            for node in own_scalars(s):
                self._count_in(node)
        for s in block:
            match s:
                case Let(Local() as target, Scalar() as value):
                    self._let(target, value)
                case Let(target, value):
                    self._out.append(
                        Let(target, self._scalar(value) if isinstance(value, Scalar) else self._index(value))
                    )
                case For() | If() if self._renamed:
                    self._out.append(self._rename(map_own(s, self._scalar, self._index)))
                case _:
                    self._out.append(map_own(s, self._scalar, self._index))
        return tuple(self._out)

    def _let(self, target: Local, value: Scalar) -> None:
        pure = self._outer.pure(value)
        if pure and value in self._known:
            self._renamed[target.name] = self._known[value]
            return
        named = rebuild(value, self._scalar, self._index)
        self._out.append(Let(target, named))
        if pure and worth_a_name(value):
            self._known[value] = target

    def _count_in(self, node: Scalar) -> None:
        if self._outer.pure(node) and worth_a_name(node):
            self._count[node] = self._count.get(node, 0) + 1
            if self._count[node] > 1:
                return
        for child in operands(node):
            self._count_in(child)

    def _scalar(self, node: Scalar) -> Scalar:
        if isinstance(node, Local):
            return self._renamed.get(node.name, node)
        if node in self._known:
            return self._known[node]
        named = rebuild(node, self._scalar, self._index)
        if self._count.get(node, 0) > 1:
            let = self._outer.new(node)
            assert isinstance(let.target, Local)
            self._out.append(Let(let.target, named))
            self._known[node] = let.target
            return let.target
        return named

    def _index(self, expr: Expr) -> Expr:
        def change(opaque: Opaque) -> Expr:
            payload = loaded(opaque)
            if not self._outer.pure(payload) or self._count.get(payload, 0) < 2:
                return map_loads(opaque, lambda load: rebuild(load, self._scalar, self._index))
            if payload not in self._indices:
                let = self._outer.new(payload, opaque)
                assert isinstance(let.target, Var)
                self._out.append(Let(let.target, rebuild(payload, self._scalar, self._index)))
                self._indices[payload] = let.target
            return self._indices[payload]

        return map_opaque(expr, change)

    def _rename(self, s: Statement) -> Statement:
        def scalar(node: Scalar) -> Scalar:
            if isinstance(node, Local):
                return self._renamed.get(node.name, node)
            return rebuild(node, scalar, index)

        def index(expr: Expr) -> Expr:
            return map_loads(expr, scalar)

        return map_block((s,), scalar, index)[0]


def worth_a_name(node: Scalar) -> bool:
    """Whether computing it again costs more than a name."""
    match node:
        case Vector(parts):
            return len(set(parts)) == 1 and isinstance(parts[0], Lane)
        case Literal() | Local() | Index() | Lane():
            return False
        case Unary("neg", x) | Cast(_, x):
            return worth_a_name(x)
    return node.dtype != "bool"


def _wish(node: Scalar) -> str:
    return f"{node.buffer}_" if isinstance(node, Load) else "t"
