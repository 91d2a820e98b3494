"""What fusion leaves as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webrelax.compiler import ops
from webrelax.compiler.fusion import fuse_ops
from webrelax.compiler.ir import FunctionBuilder, Module, ModuleBuilder, Shape, Tensor, print_module
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import ProgramBuilder

from ..ops.cases import f32, module_of
from .lowered import assert_same, kernels, normal, stages

N = Var("n", 1, 64)


def test_what_has_no_known_shape_stays_alone() -> None:
    module = ModuleBuilder()
    p = ProgramBuilder("halve")
    x = p.input("x", (N,), "f32")
    halve = p.finish(p.compute("y", (N,), lambda i: x[i] * 0.5))
    b = FunctionBuilder("f")
    b.param("s", Shape((N,)))
    y = b.emit(module.call_tir(halve, [b.param("x", Tensor(dtype="f32", ndim=1))]))
    z = b.emit(replace(module.call_tir(halve, [y]), outputs=(Tensor(dtype="f32", ndim=1),)))
    last = b.emit(module.call_tir(halve, [z]))
    module.add_function(b.finish(b.emit(module.call_tir(halve, [last]))))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["halve", "halve", "halve", "halve"]
    assert_same(modules, [(3,), normal(3)])


@pytest.mark.parametrize("unknown", [Tensor(dtype="f32", ndim=1), Tensor((N,))])
def test_nor_is_anything_moved_into_what_has_an_unknown_result(unknown: Tensor) -> None:
    module = ModuleBuilder()
    p = ProgramBuilder("halve")
    x = p.input("x", (N,), "f32")
    halve = p.finish(p.compute("y", (N,), lambda i: x[i] * 0.5))
    b = FunctionBuilder("f")
    y = b.emit(module.call_tir(halve, [b.param("x", f32(N))]))
    module.add_function(b.finish(b.emit(replace(module.call_tir(halve, [y]), outputs=(unknown,)))))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["halve", "halve"]
    assert_same(modules, [normal(3)])


def test_nor_where_one_of_several_results_is_unknown() -> None:
    module = ModuleBuilder()
    p = ProgramBuilder("both")
    x = p.input("x", (N,), "f32")
    both = p.finish(*(p.compute(f"y{at}", (N,), lambda i, at=at: x[i] + at) for at in range(2)))
    p = ProgramBuilder("halve")
    x = p.input("x", (N,), "f32")
    halve = p.finish(p.compute("y", (N,), lambda i: x[i] * 0.5))
    b = FunctionBuilder("f")
    y = b.emit(module.call_tir(halve, [b.param("x", f32(N))]))
    pair = b.emit(replace(module.call_tir(both, [y]), outputs=(f32(N), Tensor(dtype="f32", ndim=1))))
    module.add_function(b.finish(pair))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["halve", "both"]
    assert_same(modules, [normal(3)])


def fused_once() -> Module:
    b = FunctionBuilder("f")
    y = b.op(ops.tanh, b.op(ops.exp_of, b.op(ops.negate, b.param("x", f32(N, 4)))))
    return fuse_ops(legalize(module_of(b.finish(y))), WEBGPU)


def test_fused_functions_are_not_fused_again() -> None:
    once = fused_once()
    assert "fused def fused_negate_exp_tanh" in print_module(once)
    assert print_module(fuse_ops(once, WEBGPU)) == print_module(once)
