"""Deduction, the well-formedness check and the passes take steps in proportion to the length of a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Function,
    FunctionBuilder,
    Module,
    ShapeValue,
    Tensor,
    all_bindings,
    deduce,
    reference,
    verify,
)
from webrelax.compiler.pipeline import PASSES
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.target import WEBGPU

from ..ops.cases import f32, i32, module_of

N = Var("n", 1, 64)
RATIO = 11  # times the steps for ten times as many calls, at most
Program = Callable[[int], Module]
T = TypeVar("T")


def counted(work: Callable[[], T]) -> tuple[int, T]:
    """How many calls a computation makes, of functions and of generators that go on; and what it gives."""
    count = 0

    def hook(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hook)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return count, result


def layers(calls: int) -> Module:
    """Layers of a network: matrix products, nested function calls, tuples, casts, and a cache that is overwritten."""
    k = Var("k", 1, 64)
    b = FunctionBuilder("inner")
    inner = b.finish(b.op(ops.silu, b.param("x", f32(k, 4))))
    b = FunctionBuilder("outer")
    outer = b.finish(b.call(reference(inner), b.op(ops.negate, b.param("x", f32(k, 4)))))
    b = FunctionBuilder("f")
    x, w, ids = b.param("x", f32(N, 4)), b.param("w", f32(4, 4)), b.param("ids", i32(N))
    cache = b.param("cache", f32(1, 64, 1, 4))
    unknown = b.param("unknown", Tensor(dtype="f32", ndim=2))
    for at in range(calls // 10):
        wide = b.op(ops.reshape, b.op(ops.concat, x, x, axis=0), ShapeValue((N, as_expr(8))))
        gate = b.op(ops.multiply, b.op(ops.linear, x, w), b.op(ops.linear, x, w))
        called = b.call(reference(outer), gate)
        cast = b.match_cast(unknown, f32(Var(f"m{at}", 0, 64), 4))
        pair = b.make_tuple(called, b.make_tuple(cast, wide))
        x = b.op(ops.add, b.get_item(pair, 0), x)
        b.op(ops.softmax, b.get_item(b.get_item(pair, 1), 0))
        rows = b.op(ops.reshape, x, ShapeValue((N, as_expr(1), as_expr(4))))
        cache = b.op(ops.kv_append, cache, rows, ids, ids)
    return module_of(inner, outer, b.finish(x, cache, consumed=[(3, 1)]))


def chain(calls: int) -> Module:
    """One long chain of cheap operators, which could be one kernel if kernels could be of any length."""
    b = FunctionBuilder("f")
    x = y = b.param("x", f32(N, 4))
    for at in range(calls):
        y = b.op(ops.add, y, x) if at % 2 else b.op(ops.negate, y)
    return module_of(b.finish(y))


def fan(calls: int) -> Module:
    """One value with many readers, whose results are one tuple."""
    b = FunctionBuilder("f")
    x = b.op(ops.relu, b.param("x", f32(N, 4)))
    w = b.param("w", f32(4, 4))
    return module_of(b.finish(*(b.op(ops.linear if at % 2 else ops.negate, x, *[w] * (at % 2)) for at in range(calls))))


def writes(calls: int) -> Module:
    """Writes of one cache, with reads in between that must not move over them, and some in the arms of an `if`."""
    b = FunctionBuilder("f")
    flag, cache = b.param("flag", i32()), b.param("cache", f32(1, 8, 1, 4))
    new, ids = b.param("new", f32(2, 1, 4)), b.param("ids", i32(2))
    total = b.op(ops.negate, cache)
    for at in range(calls // 4):
        total = b.op(ops.add, total, b.op(ops.negate, cache))
        if at % 4:
            cache = b.op(ops.kv_append, cache, new, ids, ids)
            continue
        arms = [b.arm(), b.arm()]
        then, orelse = (arm.block(arm.op(ops.kv_append, cache, arm.op(ops.relu, new), ids, ids)) for arm in arms)
        cache = b.if_else(flag, then, orelse)
    return module_of(b.finish(total, cache, consumed=[(1, 1)]))


def functions(calls: int) -> Module:
    """Functions of which each calls the one before it, and whoever looks at one need not look at all below again."""
    made: list[Function] = []
    for at in range(calls // 2):
        b = FunctionBuilder(f"f{at}")
        x = b.param("x", f32(Var("k", 1, 64), 4))
        y = b.call(reference(made[-1]), x) if made else b.op(ops.relu, x)
        made.append(b.finish(b.op(ops.negate, y)))
    return module_of(*made)


def deduced(module: Module) -> int:
    """The number of bindings, each deduced again."""
    bindings = [b for f in module.functions.values() for b in all_bindings(f.body)]
    assert all(deduce(binding.value) is not None for binding in bindings)
    return len(bindings)


@pytest.mark.parametrize("program", [layers, chain, fan, writes, functions])
def test_deduction_and_the_check(program: Program) -> None:
    (few, small), (many, large) = (counted(partial(program, calls)) for calls in (1_000, 10_000))
    assert 10_000 <= deduced(large) <= many <= RATIO * few
    for work in (deduced, verify):
        few, many = (counted(partial(work, module))[0] for module in (small, large))
        assert 10_000 <= many <= RATIO * few


# A chain becomes few kernels: what is done once for all of them would show in fewer calls.
@pytest.mark.parametrize(("program", "calls"), [(layers, 200), (chain, 1_000), (fan, 50), (writes, 300)])
def test_every_pass(program: Program, calls: int) -> None:
    small, large = program(calls), program(10 * calls)
    for step in PASSES:
        (few, small), (many, large) = (counted(partial(step.run, module, WEBGPU)) for module in (small, large))
        assert many <= RATIO * few, step.name
