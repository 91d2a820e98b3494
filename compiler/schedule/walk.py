"""Looks into the kernel IR: what a node or a statement reads and defines."""

from __future__ import annotations

from collections.abc import Iterator

from ..symbolic import Expr, variables
from ..tir import Index, Load, Scalar, children
from ..tir.scalar import opaque_loads
from .kernel import GROUP, Assign, Block, For, If, Kernel, Let, Register, Statement, Store
from .nodes import Component, Dot, Element, Lane, Local, Matrix, MatrixProduct, Vector
from .rewrite import OnExpr, OnScalar, map_block


def operands(node: Scalar) -> Iterator[Scalar]:
    """The scalars that a node reads, loads inside its indices included."""
    match node:
        case Vector(parts) | Matrix(parts):
            yield from parts
        case Dot(a, b) | MatrixProduct(a, b):
            yield from (a, b)
        case Lane(vector):
            yield vector
        case Component(vector, index):
            yield vector
            yield from opaque_loads(index)
        case Load(_, indices):
            for index in indices:
                yield from opaque_loads(index)
        case Element(_, index) | Index(index):
            yield from opaque_loads(index)
        case _:
            yield from children(node)


def names_of(node: Scalar) -> set[str]:
    """The names of variables, locals and arrays that a node reads."""
    found: set[str] = set()
    match node:
        case Local(name):
            found.add(name)
        case Element(array, index):
            found |= {array, *(v.name for v in variables(index))}
        case Load(_, indices):
            found.update(v.name for i in indices for v in variables(i))
        case Index(expr) | Component(_, expr):
            found.update(v.name for v in variables(expr))
    return found.union(*map(names_of, operands(node)))


def defined(block: Block) -> Iterator[str]:
    for s in block:
        match s:
            case Let(target):
                yield target.name
            case Register(name):
                yield name
            case For(var, body=body):
                yield var.name
                yield from defined(body)
            case If(body=body):
                yield from defined(body)


def own_scalars(s: Statement) -> Iterator[Scalar]:
    """The scalars of a statement itself, not those of nested ones."""
    match s:
        case Let(_, value):
            yield from (value,) if isinstance(value, Scalar) else opaque_loads(value)
        case Register(_, _, values):
            yield from values
        case Assign(target, value):
            if isinstance(target, Element):
                yield from opaque_loads(target.index)
            yield value
        case Store(_, index, value):
            yield from opaque_loads(index)
            yield value
        case If(condition):
            yield condition
        case For(_, start, stop, step):
            for bound in (start, stop, step):
                yield from opaque_loads(bound)


def own_expressions(s: Statement) -> Iterator[Expr]:
    """The integer expressions of a statement itself, those inside its scalars included."""
    match s:
        case Let(_, Expr() as value):
            yield value
        case Assign(Element(_, index)) | Store(_, index):
            yield index
        case For(_, start, stop, step):
            yield from (start, stop, step)
    for node in own_scalars(s):
        yield from expressions_in(node)


def expressions_in(node: Scalar) -> Iterator[Expr]:
    """The integer expressions in a scalar."""
    match node:
        case Load(_, indices):
            yield from indices
        case Element(_, index) | Index(index) | Component(_, index):
            yield index
    for child in operands(node):
        yield from expressions_in(child)


def statements(block: Block) -> Iterator[Statement]:
    """All statements, nested ones included, in order."""
    for s in block:
        yield s
        if isinstance(s, For | If):
            yield from statements(s.body)


def variables_read(block: Block) -> set[str]:
    """The names of the integer variables that a block reads."""
    expressions = (e for s in statements(block) for e in own_expressions(s))
    return {v.name for e in expressions for v in variables(e)}


def loads_of(s: Statement) -> Iterator[Load]:
    """All loads of a statement itself."""
    for node in own_scalars(s):
        yield from _loads(node)


def _loads(node: Scalar) -> Iterator[Load]:
    if isinstance(node, Load):
        yield node
    for child in operands(node):
        yield from _loads(child)


def names_in(kernel: Kernel) -> set[str]:
    """Every name that a kernel uses."""
    named = {b.buffer.name for b in kernel.bindings} | {s.name for s in kernel.shared}
    return named | {v.name for v in (*kernel.symbols, *GROUP)} | {"lane"} | set(defined(kernel.body))


def map_own(s: Statement, scalar: OnScalar, index: OnExpr) -> Statement:
    """The statement with its own expressions mapped, nested ones left alone."""
    match s:
        case For(var, start, stop, step, body):
            return For(var, index(start), index(stop), index(step), body)
        case If(condition, body):
            return If(scalar(condition), body)
    return map_block((s,), scalar, index)[0]
