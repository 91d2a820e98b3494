"""legalize: operators become calls of programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Call, CallTIR, FunctionBuilder, Operator, Tensor, all_bindings, print_module, verify
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Var

from ..ops.cases import CASES, f32, i32, module_of

N = Var("n", 1, 64)


def test_before_and_after() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 4)), b.param("w", f32(3, 4))
    module = legalize(module_of(b.finish(b.op(ops.relu, b.op(ops.linear, x, w)))))
    assert print_module(module) == (
        'def f(x: Tensor((n, 4), "f32"), w: Tensor((3, 4), "f32")) -> Tensor((n, 3), "f32"):\n'
        '    linear: Tensor((n, 3), "f32") = call_tir(linear, x, w, symbols=(n))\n'
        '    relu: Tensor((n, 3), "f32") = call_tir(relu, linear, symbols=(n))\n'
        "    return relu\n"
        "\n"
        "program linear(x: f32[n, 4], w: f32[3, 4], n) -> (y: f32[n, 3]):\n"
        "    for i0 < n, i1 < 3:\n"
        "        y[i0, i1] = sum over (k0 < 4) of (x[i0, k0] * w[i1, k0])\n"
        "\n"
        "program relu(x: f32[n, 3], n) -> (y: f32[n, 3]):\n"
        "    for i0 < n, i1 < 3:\n"
        "        y[i0, i1] = max(x[i0, i1], 0.0)\n"
    )


def test_equal_calls_share_a_program_and_others_do_not() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(N, 4)), b.param("y", f32(N, 5))
    values = [b.op(ops.relu, x), b.op(ops.relu, x), b.op(ops.relu, y)]
    module = legalize(module_of(b.finish(*values)))
    calls = [v.value.program for v in module.functions["f"].body.bindings if isinstance(v.value, CallTIR)]
    assert calls == ["relu", "relu", "relu_1"]


def test_operators_of_one_name_are_told_apart() -> None:
    """A user's operator may be called like one of ours."""
    assert ops.negate.lower
    mine = Operator("relu", ops.negate.deduce, ops.negate.lower)
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    module = legalize(module_of(b.finish(b.op(ops.relu, x), b.op(mine, x))))
    first, second = (v.value for v in module.functions["f"].body.bindings[:2])
    assert isinstance(first, CallTIR)
    assert isinstance(second, CallTIR)
    assert first.program != second.program


def test_arms_are_lowered_and_operators_without_lowering_stay() -> None:
    unique = Operator("unique", lambda arguments, _: Tensor(dtype="f32", ndim=1), None)
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32()), b.param("x", f32(4))
    then, orelse = b.arm(), b.arm()
    b.if_else(flag, then.block(then.op(ops.relu, x)), orelse.block(orelse.op(ops.negate, x)))
    module = legalize(module_of(b.finish(b.op(unique, x))))
    verify(module)
    left = [v.value.op.name for v in all_bindings(module.functions["f"].body) if isinstance(v.value, Call)]
    assert left == ["unique"]
    assert list(module.programs) == ["relu", "negate"]


def test_operators_that_others_make_up_are_expanded() -> None:
    module = legalize(CASES["attention"].module)
    verify(module)
    assert list(module.programs) == ["attention_scores", "softmax", "attention_values"]
    assert module.functions["f"].body.bindings[-1].name.name == "attention"


def test_shapes_must_be_known() -> None:
    b = FunctionBuilder("f")
    module = module_of(b.finish(b.op(ops.relu, b.param("x", Tensor(dtype="f32", ndim=2)))))
    verify(module)
    with pytest.raises(ValueError, match="the shape of x is not known: match_cast it first"):
        legalize(module)


def test_it_does_nothing_twice_and_keeps_the_rest() -> None:
    once = replace(legalize(CASES["rms_norm"].module), storages={"s": 8})
    assert legalize(once) == once
