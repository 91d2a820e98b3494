"""Rewriting kernels: their values, integers and statements mapped, buffers renamed, bindings merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..symbolic import Expr, Opaque, map_opaque
from ..tir import Load, Scalar
from ..tir import rebuild as rebuild_tir
from .kernel import Assign, Binding, Block, For, If, Kernel, Let, Register, Statement, Store
from .nodes import Component, Dot, Element, Lane, Local, Matrix, MatrixProduct, Vector

OnScalar = Callable[[Scalar], Scalar]
OnExpr = Callable[[Expr], Expr]


def rebuild(node: Scalar, on_scalar: OnScalar, on_index: OnExpr) -> Scalar:
    """tir's `rebuild`, for the kernel's nodes too (one level: recursion is the callback's)."""
    match node:
        case Local():
            return node
        case Element(array, index, dtype):
            return Element(array, on_index(index), dtype)
        case Vector(parts):
            return Vector(tuple(map(on_scalar, parts)))
        case Matrix(columns):
            return Matrix(tuple(map(on_scalar, columns)))
        case MatrixProduct(a, b):
            return MatrixProduct(on_scalar(a), on_scalar(b))
        case Dot(a, b):
            return Dot(on_scalar(a), on_scalar(b))
        case Lane(vector, at):
            return Lane(on_scalar(vector), at)
        case Component(vector, index):
            return Component(on_scalar(vector), on_index(index))
    return rebuild_tir(node, on_scalar, on_index)


def loaded(opaque: Opaque) -> Load:
    """The load behind a run-time integer: kernels have no other ones."""
    assert isinstance(opaque.payload, Load)
    return opaque.payload


def map_loads(expr: Expr, change: OnScalar) -> Expr:
    """The expression with the loads in it mapped (to loads)."""

    def one(opaque: Opaque) -> Expr:
        load = change(loaded(opaque))
        assert isinstance(load, Load)
        return Opaque(load, opaque.lower, opaque.upper)

    return map_opaque(expr, one)


def deep(node: Scalar, change: OnScalar) -> Scalar:
    """Rebuilds a scalar bottom-up, loads inside indices included; `change` maps each node after its children."""

    def on_index(expr: Expr) -> Expr:
        return map_loads(expr, on_scalar)

    def on_scalar(inner: Scalar) -> Scalar:
        return change(rebuild(inner, on_scalar, on_index))

    return on_scalar(node)


def map_block(block: Block, on_scalar: OnScalar, on_index: OnExpr) -> Block:
    """Every expression of the statements mapped, nested ones included. Targets of lets and loops stay."""

    def value(v: Scalar | Expr) -> Scalar | Expr:
        return on_scalar(v) if isinstance(v, Scalar) else on_index(v)

    def one(statement: Statement) -> Statement:
        match statement:
            case Let(target, v):
                return Let(target, value(v))
            case Register(name, dtype, values):
                return Register(name, dtype, tuple(map(on_scalar, values)))
            case Assign(Element(array, index, dtype), v):
                return Assign(Element(array, on_index(index), dtype), on_scalar(v))
            case Assign(target, v):
                return Assign(target, on_scalar(v))
            case Store(buffer, index, v):
                return Store(buffer, on_index(index), on_scalar(v))
            case For(var, start, stop, step, body):
                return For(var, on_index(start), on_index(stop), on_index(step), map_block(body, on_scalar, on_index))
            case If(condition, body):
                return If(on_scalar(condition), map_block(body, on_scalar, on_index))
        return statement

    return tuple(map(one, block))


def rename_memory(block: Block, names: Mapping[str, str]) -> Block:
    """The statements with buffers and arrays renamed."""

    def renamed(node: Scalar) -> Scalar:
        match node:
            case Load(buffer):
                return replace(node, buffer=names.get(buffer, buffer))
            case Element(array):
                return replace(node, array=names.get(array, array))
        return node

    def on_scalar(node: Scalar) -> Scalar:
        return deep(node, renamed)

    def on_index(expr: Expr) -> Expr:
        return map_loads(expr, on_scalar)

    def targets(block: Block) -> Block:
        result: list[Statement] = []
        for s in block:
            match s:
                case Store(buffer):
                    result.append(replace(s, buffer=names.get(buffer, buffer)))
                case Assign(Element(array) as target):
                    result.append(replace(s, target=replace(target, array=names.get(array, array))))
                case For(body=body) | If(body=body):
                    result.append(replace(s, body=targets(body)))
                case _:
                    result.append(s)
        return tuple(result)

    return targets(map_block(block, on_scalar, on_index)) if names else block


def merge_bindings(kernel: Kernel, groups: Sequence[Sequence[int]]) -> Kernel:
    """One binding for each group of positions that are the same memory (the first one's), writable if any of them is.

    Groups must be of one type; merge before `optimize` (which `emit` calls). Merging a read buffer with a written one
    changes what the kernel computes unless the program said so (in place).
    """
    names: dict[str, str] = {}
    writable = [b.writable for b in kernel.bindings]
    dropped: set[int] = set()
    for first, *others in groups:
        for other in others:
            names[kernel.bindings[other].buffer.name] = kernel.bindings[first].buffer.name
            writable[first] |= writable[other]
            dropped.add(other)
    bindings = tuple(
        Binding(b.buffer, w)
        for at, (b, w) in enumerate(zip(kernel.bindings, writable, strict=True))
        if at not in dropped
    )
    return replace(kernel, bindings=bindings, body=rename_memory(kernel.body, names))
