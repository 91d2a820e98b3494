"""Matmuls side by side in one kernel: those that read the same elements of the same tensor, by their loops alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import CallTIR, FunctionBuilder, Module, ModuleBuilder, Tensor, all_bindings
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.tir import (
    MAX,
    SUM,
    Axis,
    Program,
    ProgramBuilder,
    Reducer,
    Scalar,
    Stage,
    print_program,
    substitute_scalar,
)

from ..ops.cases import f32, module_of
from .lowered import assert_same, kernels, normal, stages

N = Var("n", 1, 64)


def product(name: str, left: Any, right: Any, shape: Any = (8, 8), columns: int = 8, offset: float = 0) -> Program:
    """y[i, o] = sum over k of x[left(i, o, k)] * (w[right(i, o, k)] + offset), over two matrices of 8 columns."""
    b = ProgramBuilder(name)
    x, w = b.input("x", (shape[0], columns), "f32"), b.input("w", (8, columns), "f32")

    def term(i: Any, o: Any, k: Any) -> Any:
        factor = w[right(i, o, k)]
        return x[left(i, o, k)] * (factor + offset if offset else factor)

    return b.finish(b.reduce("y", shape, (columns,), term))


def by_rows(i: Any, o: Any, k: Any) -> Any:
    return i, k


def by_columns(i: Any, o: Any, k: Any) -> Any:
    return k, i


def weights(i: Any, o: Any, k: Any) -> Any:
    return o, k


def multiplied(first: Program, second: Program, *args: str) -> Module:
    """f(x, y, v, w: [8, 8]) = first(args[0], args[1]) * second(args[2], args[3])."""
    module = ModuleBuilder()
    b = FunctionBuilder("f")
    given = {name: b.param(name, f32(8, 8)) for name in ("x", "y", "v", "w")}
    products = [
        b.emit(module.call_tir(program, [given[a] for a in pair]), program.name)
        for program, pair in ((first, args[:2]), (second, args[2:]))
    ]
    module.add_function(b.finish(b.op(ops.multiply, *products)))
    return module.finish()


def count(module: Module) -> int:
    """The kernels after fusion, which compute the same."""
    modules = stages(module)
    assert_same(modules, [normal(8, 8, seed=at) for at in range(4)])
    return len(kernels(modules[-1]))


PLAIN = product("plain", by_rows, weights)
TURNED = product("turned", by_columns, weights)
SHIFTED = product("shifted", by_rows, weights, offset=1.0)


@pytest.mark.parametrize(
    ("first", "second", "args"),
    [
        (PLAIN, PLAIN, "xvxw"),
        (TURNED, TURNED, "xvxw"),
        # Two inputs of one matrix of weights.
        (PLAIN, PLAIN, "xvyv"),
        # The other factor may be anything, of any tensor, the one that is shared included.
        (PLAIN, SHIFTED, "xvxw"),
        (PLAIN, PLAIN, "xvxx"),
    ],
)
def test_products_of_the_same_elements_are_one_kernel(first: Program, second: Program, args: str) -> None:
    assert count(multiplied(first, second, *args)) == 1


@pytest.mark.parametrize(
    ("first", "second", "args"),
    [
        (PLAIN, PLAIN, "xvyw"),
        # x[i, k], and x[o, k] as the other factor.
        (PLAIN, PLAIN, "xvyx"),
        # x[i, k] and x[k, i].
        (PLAIN, TURNED, "xvxw"),
        # The same loads of v, but v and v + 1 are different factors.
        (PLAIN, SHIFTED, "xvyv"),
    ],
)
def test_products_of_other_elements_are_two(first: Program, second: Program, args: str) -> None:
    assert count(multiplied(first, second, *args)) == 2


def renamed(program: Program) -> Program:
    """The program with other names for its loops."""

    def stage(old: Stage) -> Stage:
        names = {a.var: Var(f"other_{a.var.name}", a.var.lower, a.var.upper) for a in (*old.spatial, *old.reduce)}
        spatial, reduce = (tuple(Axis(names[a.var], a.extent) for a in axes) for axes in (old.spatial, old.reduce))
        mapping: dict[Expr, Expr | int] = dict(names.items())
        values = tuple(substitute_scalar(value, mapping) for value in old.values)
        return replace(old, spatial=spatial, reduce=reduce, indices=tuple(a.var for a in spatial), values=values)

    return replace(program, name="renamed", stages=tuple(map(stage, program.stages)))


def test_names_do_not_matter() -> None:
    """Other names of the loops; and other ones of the buffers, in another order."""
    assert count(multiplied(PLAIN, renamed(PLAIN), *"xvxw")) == 1
    b = ProgramBuilder("other")
    w, x = b.input("k0", (8, 8), "f32"), b.input("i0", (8, 8), "f32")
    other = b.finish(b.reduce("z", (8, 8), (8,), lambda i, o, k: w[o, k] * x[i, k]))
    assert count(multiplied(PLAIN, other, *"xvwx")) == 1


def test_a_longer_sum_is_another_loop() -> None:
    """x[i, k] for k below 8 and below 4: neither kernel has the other's loop."""
    half = ProgramBuilder("half")
    x, w = half.input("x", (8, 8), "f32"), half.input("w", (8, 8), "f32")
    program = half.finish(half.reduce("y", (8, 8), (4,), lambda i, o, k: x[i, k] * w[o, k]))
    assert count(multiplied(PLAIN, program, *"xvxw")) == 2


def reduction(name: str, term: Callable[[Scalar, Scalar], Scalar], reducer: Reducer) -> Program:
    b = ProgramBuilder(name)
    x, w = b.input("x", (8, 8), "f32"), b.input("w", (8, 8), "f32")
    return b.finish(b.reduce("y", (8, 8), (8,), lambda i, o, k: term(x[i, k], w[o, k]), reducer))


@pytest.mark.parametrize(
    "other", [reduction("top", lambda a, b: a * b, MAX), reduction("quotients", lambda a, b: a / b, SUM)]
)
def test_other_reductions_have_no_operand(other: Program) -> None:
    """A largest product, and a sum of quotients: their loops, and what they read, are those of a matmul."""
    assert count(multiplied(PLAIN, other, *"xvxw")) == count(multiplied(other, PLAIN, *"xvxw")) == 2


def test_all_of_a_group_share_one_operand() -> None:
    """x v', x w', and sums of v w: each two share a factor, but no factor is in all three."""
    module = ModuleBuilder()
    b = FunctionBuilder("f")
    x, v, w = (b.param(name, f32(8, 8)) for name in "xvw")
    pairs = product("pairs", weights, weights)
    products = [
        b.emit(module.call_tir(program, args)) for program, args in ((PLAIN, (x, v)), (PLAIN, (x, w)), (pairs, (v, w)))
    ]
    module.add_function(b.finish(b.op(ops.add, b.op(ops.add, *products[:2]), products[2])))
    modules = stages(module.finish())
    assert len(kernels(modules[-1])) == 2
    assert_same(modules, [normal(8, 8, seed=at) for at in range(3)])


def test_symbols_are_compared_as_the_caller_gives_them() -> None:
    """Two programs of their own variables: the calls say what these are."""
    p, q = Var("p", 1, 64), Var("q", 1, 64)
    module = ModuleBuilder()

    def rows(variable: Var) -> Program:
        b = ProgramBuilder(f"of_{variable}")
        x, w = b.input("x", (variable, 8), "f32"), b.input("w", (4, 8), "f32")
        return b.finish(b.reduce("y", (variable, 4), (8,), lambda i, o, k: x[i, k] * w[o, k]))

    b = FunctionBuilder("f")
    x, v, w = b.param("x", f32(N, 8)), b.param("v", f32(4, 8)), b.param("w", f32(4, 8))
    out = (Tensor((N, 4), "f32"),)
    y = [b.emit(CallTIR(module.add_program(rows(var)), (x, weight), out, (N,))) for var, weight in ((p, v), (q, w))]
    module.add_function(b.finish(b.op(ops.add, *y)))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["fused_of_p_of_q_add"]
    assert_same(modules, [normal(5, 8), normal(4, 8, seed=1), normal(4, 8, seed=2)])


AFTER = """\
program fused_linear_linear_multiply(p0: f32[n, 8], p1: f32[6, 8], p2: f32[6, 8], n) -> (multiply: f32[n, 6]):
    local linear: f32[n, 6]
    local linear_1: f32[n, 6]
    for i0 < n, i1 < 6:
        linear[i0, i1] = sum over (k0 < 8) of (p0[i0, k0] * p1[i1, k0])
    for i0 < n, i1 < 6:
        linear_1[i0, i1] = sum over (k0 < 8) of (p0[i0, k0] * p2[i1, k0])
    for i0 < n, i1 < 6:
        multiply[i0, i1] = (linear[i0, i1] * linear_1[i0, i1])
"""


def test_the_program_of_twins() -> None:
    b = FunctionBuilder("f")
    x, v, w = b.param("x", f32(N, 8)), b.param("v", f32(6, 8)), b.param("w", f32(6, 8))
    modules = stages(module_of(b.finish(b.op(ops.multiply, b.op(ops.linear, x, v), b.op(ops.linear, x, w)))))
    before = [b.value.program for b in all_bindings(modules[1].functions["f"].body) if isinstance(b.value, CallTIR)]
    assert before == ["linear", "linear", "multiply"]
    (program,) = modules[-1].programs.values()
    assert print_program(program) == AFTER
