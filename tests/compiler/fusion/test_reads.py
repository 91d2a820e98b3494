"""What goes into the loads of what reads it: what is read once, or is as cheap to compute as to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, CallTIR, FunctionBuilder, ModuleBuilder, Name, Operator, Tensor
from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import Binary, Cast, Handle, Literal, Program, ProgramBuilder, Scalar

from ..ops.cases import f32, i32, module_of
from .lowered import assert_same, kernels, normal, stages

N = Var("n", 1, 64)


def of_matrix(name: str, element: Callable[[Handle, Any, Any], Scalar], dtype: str = "f32") -> Operator:
    """y[i, j] = element(x, i, j) of a [4, 8] tensor."""

    def lower(_: Any, __: Any) -> Program:
        b = ProgramBuilder(name)
        x = b.input("x", (4, 8), dtype)
        return b.finish(b.compute("y", (4, 8), lambda i, j: element(x, i, j)))

    return Operator(name, lambda _, __: f32(4, 8), lower)


NEIGHBOURS = of_matrix("neighbours", lambda x, i, j: x[i, j] + x[i, 7 - j])
SQUARE = of_matrix("square", lambda x, i, j: x[i, j] * x[i, j])
THIRD = of_matrix("third", lambda x, i, j: x[i, j] / 3.0)
DIGIT = of_matrix("digit", lambda x, i, j: Cast("f32", Binary("div", x[i, j], Literal(3, "u32"))), "u32")


def check(results: tuple[Name, ...], b: FunctionBuilder, expected: list[str], *args: Any) -> None:
    modules = stages(module_of(b.finish(*results)))
    assert kernels(modules[-1]) == expected
    assert_same(modules, args)


@pytest.mark.parametrize(("reader", "expected"), [(SQUARE, ["fused_exp_square"]), (NEIGHBOURS, ["exp", "neighbours"])])
def test_two_elements_are_read_twice_and_one_is_not(reader: Operator, expected: list[str]) -> None:
    b = FunctionBuilder("f")
    check((b.op(reader, b.op(ops.exp_of, b.param("x", f32(4, 8)))),), b, expected, normal(4, 8))


def test_every_reader_is_asked() -> None:
    """One of two readers in the same kernel, the first or the last, would compute each element twice."""
    b = FunctionBuilder("f")
    y = b.op(ops.exp_of, b.param("x", f32(4, 8)))
    first = b.op(ops.add, b.op(NEIGHBOURS, y), y)
    check((first,), b, ["exp", "fused_neighbours_add"], normal(4, 8))
    b = FunctionBuilder("f")
    y = b.op(ops.exp_of, b.param("x", f32(4, 8)))
    t = b.op(ops.tanh, y)
    check((b.op(ops.add, t, b.op(NEIGHBOURS, y)),), b, ["exp", "fused_tanh_neighbours_add"], normal(4, 8))


@pytest.mark.parametrize(("operator", "is_cheap"), [(THIRD, False), (DIGIT, True), (SQUARE, True)])
def test_division_is_as_cheap_as_reading_among_integers_only(operator: Operator, is_cheap: bool) -> None:
    b = FunctionBuilder("f")
    x = b.param("x", Tensor((4, 8), "u32") if operator is DIGIT else f32(4, 8))
    y = b.op(ops.linear, b.op(operator, x), b.param("w", f32(6, 8)))
    name = operator.name
    values = np.arange(32, dtype=np.uint32).reshape(4, 8) if operator is DIGIT else normal(4, 8)
    check((y,), b, [f"fused_{name}_linear"] if is_cheap else [name, "linear"], values, normal(6, 8))


def test_what_reads_more_than_it_writes_is_not_computed_again() -> None:
    b = FunctionBuilder("f")
    y = b.op(ops.add, b.param("x", f32(N, 8)), b.param("y", f32(N, 8)))
    z = b.op(ops.linear, y, b.param("w", f32(6, 8)))
    check((z,), b, ["add", "linear"], normal(3, 8), normal(3, 8, seed=1), normal(6, 8))


def test_a_chain_goes_into_the_loads_of_a_matmul() -> None:
    b = FunctionBuilder("f")
    y = b.op(ops.relu, b.op(ops.negate, b.param("x", f32(N, 8))))
    check((b.op(ops.linear, y, b.param("w", f32(6, 8))),), b, ["fused_negate_relu_linear"], normal(3, 8), normal(6, 8))


def test_what_cannot_go_onto_a_matmul_goes_into_the_next_one() -> None:
    """Onto the first one's result would be better, but that is needed by itself."""
    b = FunctionBuilder("f")
    x, w, v = b.param("x", f32(N, 8)), b.param("w", f32(6, 8)), b.param("v", f32(5, 6))
    y = b.op(ops.linear, x, w)
    args = normal(3, 8), normal(6, 8), normal(5, 6)
    check((b.op(ops.linear, b.op(ops.relu, y), v), y), b, ["linear", "fused_relu_linear"], *args)


def test_nor_onto_one_that_stays_alone() -> None:
    """The first product's argument is a tensor of unknown shape."""
    module = ModuleBuilder()
    p = ProgramBuilder("product")
    left, right = p.input("x", (N, 8), "f32"), p.input("w", (8, 8), "f32")
    product = p.finish(p.reduce("y", (N, 8), (8,), lambda i, o, k: left[i, k] * right[o, k]))
    b = FunctionBuilder("f")
    x, w, known = b.param("x", Tensor(dtype="f32", ndim=2)), b.param("w", f32(8, 8)), b.param("known", f32(N, 8))
    name = module.add_program(product)
    halve = _halve()
    first = b.emit(CallTIR(name, (x, w), (f32(N, 8),), (N,)))
    y = b.emit(CallTIR(module.add_program(halve), (first,), (f32(N, 8),), (N,)))
    second = b.emit(CallTIR(name, (y, w), (f32(N, 8),), (N,)))
    module.add_function(b.finish(second, known))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["product", "fused_halve_product"]
    assert_same(modules, [normal(3, 8), normal(8, 8), normal(3, 8)])


def _halve() -> Program:
    b = ProgramBuilder("halve")
    x = b.input("x", (N, 8), "f32")
    return b.finish(b.compute("y", (N, 8), lambda i, j: x[i, j] * 0.5))


def test_a_value_that_is_an_index_too_stays_in_memory() -> None:
    def lower(_: Any, __: Any) -> Program:
        b = ProgramBuilder("both")
        table, ids = b.input("table", (9,), "f32"), b.input("ids", (N,), "i32")
        return b.finish(b.compute("y", (N,), lambda i: table[ids[i]] * Cast("f32", ids[i])))

    def deduce(arguments: tuple[Annotation, ...], _: Any) -> Annotation:
        return f32(N)

    b = FunctionBuilder("f")
    table, ids = b.param("table", f32(9)), b.param("ids", i32(N))
    y = b.op(Operator("both", deduce, lower), table, b.op(ops.relu, ids))
    check((y,), b, ["relu", "both"], normal(9), np.array([-3, 8, 2], np.int32))


def test_only_a_single_loop_goes_onto_a_result() -> None:
    """A program of two steps, each elementwise."""

    def lower(_: Any, __: Any) -> Program:
        b = ProgramBuilder("steps")
        x = b.input("x", (N, 8), "f32")
        half = b.compute("half", (N, 8), lambda i, j: x[i, j] * 0.5)
        return b.finish(b.compute("y", (N, 8), lambda i, j: half[i, j] + 1.0))

    b = FunctionBuilder("f")
    y = b.op(ops.linear, b.param("x", f32(N, 8)), b.param("w", f32(8, 8)))
    z = b.op(Operator("steps", lambda given, _: given[0], lower), y)
    check((z,), b, ["linear", "steps"], normal(3, 8), normal(8, 8))


def test_a_long_chain_is_several_kernels() -> None:
    """Expressions nest as deep as a kernel's chain is long, and Python's stack is finite."""
    b = FunctionBuilder("f")
    x = y = b.param("x", f32(N, 8))
    for at in range(500):
        y = b.op(ops.add, y, x) if at % 2 else b.op(ops.negate, y)
    modules = stages(module_of(b.finish(y)))
    assert len(kernels(modules[-1])) == 16  # of 32 operators, the first one of 20
    assert_same([modules[0], modules[-1]], [normal(3, 8)])
