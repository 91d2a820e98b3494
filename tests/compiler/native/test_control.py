"""Calls, choices, casts and shapes that only a run tells, compiled and run on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.ir import Annotation, FunctionBuilder, Module, Object, Shape, ShapeValue, Tensor, reference
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.vm import VMError

from ..ops.cases import Array, f32, i32, module_of
from .compare import check_on_device

N, M, K = Var("n", 1, 8), Var("m", 1, 8), Var("k", 0, 64)
FLAGS = [np.array([value], np.int32) for value in (1, 0)]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Choices


def test_arms_with_results_in_different_memory_and_of_different_shape() -> None:
    """What follows reads one tensor, whose length is the arm's."""
    b = FunctionBuilder("f")
    flag, x, y = b.param("flag", i32(1)), b.param("x", f32(N, 4)), b.param("y", f32(M, 4))
    then, orelse = b.arm(), b.arm()
    chosen = b.if_else(
        flag, then.block(then.op(ops.concat, x, y, axis=0)), orelse.block(orelse.op(ops.negate, y)), hint="chosen"
    )
    rows = b.match_cast(chosen, f32(K, 4))
    module = module_of(b.finish(b.op(ops.exp_of, rows), chosen))
    check_on_device(module, [[flag, normal(n, 4), normal(m, 4)] for flag in FLAGS for n, m in ((1, 1), (3, 8))])


def test_an_arm_that_only_names_an_argument() -> None:
    b = FunctionBuilder("f")
    flag, x, y = b.param("flag", i32(1)), b.param("x", f32(N)), b.param("y", f32(N))
    chosen = b.if_else(flag, b.arm().block(x), b.arm().block(y))
    module = module_of(b.finish(b.op(ops.add, chosen, y)))
    check_on_device(module, [[flag, normal(5), normal(5, seed=1)] for flag in FLAGS])


def test_nested_choices_by_what_the_device_computed() -> None:
    b = FunctionBuilder("f")
    first, second, x = b.param("first", i32(1)), b.param("second", i32(1)), b.param("x", f32(N, 3))
    then, orelse = b.arm(), b.arm()
    left, right = then.arm(), then.arm()
    inner = then.if_else(
        then.op(ops.add, second, second), left.block(left.op(ops.tanh, x)), right.block(right.op(ops.silu, x))
    )
    chosen = b.if_else(
        first, then.block(then.op(ops.multiply, inner, x)), orelse.block(orelse.op(ops.softmax, x)), hint="chosen"
    )
    module = module_of(b.finish(b.op(ops.add, chosen, x)))
    check_on_device(module, [[one, two, normal(4, 3)] for one in FLAGS for two in FLAGS])


def test_a_choice_of_tuples_and_shapes() -> None:
    b = FunctionBuilder("f")
    flag, x, y = b.param("flag", i32(1)), b.param("x", f32(N, 2)), b.param("y", f32(N, 2))
    then, orelse = b.arm(), b.arm()
    pair = b.if_else(
        flag,
        then.block(then.make_tuple(then.op(ops.exp_of, x), ShapeValue((N * 2,)))),
        orelse.block(orelse.make_tuple(orelse.op(ops.negate, y), ShapeValue((N + N,)))),
    )
    module = module_of(b.finish(b.op(ops.reshape, b.get_item(pair, 0), b.get_item(pair, 1))))
    check_on_device(module, [[flag, normal(3, 2), normal(3, 2, seed=1)] for flag in FLAGS])


def test_dispatches_of_the_other_arm_do_not_run() -> None:
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32(1)), b.param("x", f32(N, 4))
    then, orelse = b.arm(), b.arm()
    long = then.op(ops.softmax, then.op(ops.softmax, then.op(ops.softmax, x)))
    module = module_of(b.finish(b.if_else(flag, then.block(long), orelse.block(orelse.op(ops.negate, x)))))
    runner = check_on_device(module, [[FLAGS[0], normal(2, 4)]])
    counts = []
    for flag_value in FLAGS:
        runner.call("f", {"flag": flag_value, "x": normal(2, 4)})
        counts.append(runner.dispatches)
    assert counts == [3, 1]


# Calls


def scaled(name: str, operator: Any) -> Any:
    """name(x: (k,)) -> (2 k,): its argument, and what an operator makes of it."""
    k = Var("k", 1, 16)
    b = FunctionBuilder(name)
    x = b.param("x", f32(k))
    return b.finish(b.op(ops.concat, x, b.op(operator, x), axis=0))


def test_functions_as_values_through_names_tuples_and_arguments() -> None:
    double, other = scaled("double", ops.negate), scaled("other", ops.exp_of)
    signature = reference(double).annotation
    apply = FunctionBuilder("apply")
    function, x = apply.param("function", signature), apply.param("x", f32(N))
    applied = apply.finish(apply.call(function, x))
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    pair = b.make_tuple(reference(double), reference(other))
    first, second = b.get_item(pair, 0), b.get_item(pair, 1)
    results = [b.call(first, x), b.call(second, x), b.call(reference(applied), second, x)]
    check_on_device(module_of(double, other, applied, b.finish(*results)), [[normal(n)] for n in (1, 8)])


def test_a_choice_of_functions_is_a_choice_of_calls() -> None:
    double, other = scaled("double", ops.negate), scaled("other", ops.exp_of)
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32(1)), b.param("x", f32(N))
    chosen = b.if_else(flag, b.arm().block(reference(double)), b.arm().block(reference(other)))
    module = module_of(double, other, b.finish(b.op(ops.relu, b.call(chosen, x))))
    check_on_device(module, [[flag, normal(6)] for flag in FLAGS])


def test_an_overwritten_argument_of_a_call_is_the_callers_state() -> None:
    b = FunctionBuilder("store")
    cache, new, where = b.param("cache", f32(1, 9, 1, 4)), b.param("new", f32(1, 1, 4)), b.param("where", i32(1))
    zero = b.op(ops.subtract, where, where)
    store = b.finish(b.op(ops.kv_append, cache, b.op(ops.tanh, new), where, zero), consumed=[(0, 0)])
    b = FunctionBuilder("f")
    cache, x, where = b.param("cache", f32(1, 9, 1, 4)), b.param("x", f32(1, 1, 4)), b.param("where", i32(1))
    after = b.call(reference(store), cache, x, where)
    module = module_of(store, b.finish(after, b.op(ops.exp_of, x), consumed=[(0, 0)]))
    check_on_device(module, [[normal(1, 9, 1, 4), normal(1, 1, 4, seed=1), np.array([at], np.int32)] for at in (0, 8)])


# Shapes that only a run tells


def test_unique_feeds_symbolic_programs() -> None:
    """Relax, fig. 3: what follows is compiled for any number of distinct values."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 2, 2))
    flat = b.op(ops.flatten, b.op(ops.reshape, x, ShapeValue((N, as_expr(4)))))
    found = b.match_cast(b.op(ops.unique, flat), f32(Var("u", 1, 32)))
    module = module_of(b.finish(b.op(ops.softmax, b.op(ops.exp_of, found)), b.op(ops.nonzero, x)))
    rng = np.random.default_rng(0)
    calls = [[rng.integers(0, most, (n, 2, 2)).astype(np.float32)] for n, most in ((1, 2), (8, 3), (8, 30), (3, 1))]
    check_on_device(module, calls)


def test_data_dependent_lengths_inside_an_arm() -> None:
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32(1)), b.param("x", f32(N))
    then, orelse = b.arm(), b.arm()
    module = module_of(
        b.finish(b.if_else(flag, then.block(then.op(ops.unique, x)), orelse.block(orelse.op(ops.negate, x))))
    )
    check_on_device(module, [[flag, np.array([2, 1, 2, 2, 3], np.float32)] for flag in FLAGS])


# What is refused when it runs


def cast_of_unique() -> Module:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    found = b.match_cast(b.op(ops.unique, x), f32(Var("u", 2, 4)), hint="found")
    return module_of(b.finish(b.op(ops.exp_of, found)))


def call_with_rows() -> Module:
    """pairs(half: Shape([k]), x: (2 k, 3)), called with a tensor of n rows: whether n is 2 k only a run tells."""
    b = FunctionBuilder("pairs")
    b.param("half", Shape((K,)))
    pairs = b.finish(b.op(ops.exp_of, b.param("x", f32(K * 2, 3))))
    b = FunctionBuilder("f")
    half, x = b.param("half", Shape((M,))), b.param("x", f32(N, 3))
    return module_of(pairs, b.finish(b.call(reference(pairs), half, x)))


def required() -> Module:
    b = FunctionBuilder("inner")
    past, x = b.param("past", Shape((M,))), b.param("x", f32(N))
    inner = replace(b.finish(b.op(ops.exp_of, x)), requires=((N + M, as_expr(9)),))
    b = FunctionBuilder("f")
    past, x = b.param("past", Shape((M,))), b.param("x", f32(N))
    return module_of(inner, b.finish(b.call(reference(inner), past, x)))


def same(*dims: Var) -> Module:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(*dims)), b.param("y", f32(dims[0] * 2))
    return module_of(b.finish(b.op(ops.exp_of, x), b.op(ops.exp_of, y)))


def distinct(count: int) -> Array:
    return np.resize(np.arange(count, dtype=np.float32), 6)


# module, function, arguments, what the error says: function, argument, dimension, expected expression, actual value
REFUSED: list[tuple[Module, str, dict[str, Any], str]] = [
    (same(N), "f", {"x": normal(9), "y": normal(18)}, "f: dimension 0 of x (n): expected at most 8, got 9"),
    (same(N), "f", {"x": normal(0), "y": normal(0)}, "f: dimension 0 of x (n): expected at least 1, got 0"),
    (same(N), "f", {"x": normal(3), "y": normal(7)}, "f: dimension 0 of y (n*2): expected 6, got 7"),
    (same(N, N), "f", {"x": normal(2, 3), "y": normal(4)}, "f: dimension 1 of x (n): expected 2, got 3"),
    (cast_of_unique(), "f", {"x": distinct(5)}, "f: dimension 0 of found (u): expected at most 4, got 5"),
    (cast_of_unique(), "f", {"x": distinct(1)}, "f: dimension 0 of found (u): expected at least 2, got 1"),
    (
        call_with_rows(), "f", {"half": (3,), "x": normal(5, 3)},
        "f: dimension 0 of argument x of pairs (m*2): expected 6, got 5",
    ),
    (
        required(), "f", {"past": (4,), "x": normal(7)},
        "f: dimension 0 of -m - n + 9 of inner (rest): expected at least 0, got -2",
    ),
    (required(), "inner", {"past": (4,), "x": normal(7)}, "inner: m + n must be at most 9: expected at most 9, got 11"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "inputs", "message"), REFUSED)
def test_a_refusal_names_function_argument_dimension_and_values(
    module: Module, name: str, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(VMError) as caught:
        Runner.of(compile(module)).call(name, inputs)
    assert message in str(caught.value)


@pytest.mark.parametrize("known", [Tensor(dtype="f32"), Object()])
def test_a_result_of_unknown_rank_is_refused_when_compiled(known: Annotation) -> None:
    b = FunctionBuilder("f")
    module = module_of(b.finish(b.match_cast(b.op(ops.exp_of, b.param("x", f32(N))), known, hint="y")))
    with pytest.raises(WebrelaxError, match=r"f: result y is .*: a compiled program needs its rank"):
        compile(module)


def test_a_replaced_buffer_is_what_the_next_replay_uses() -> None:
    """The input's buffer: what was resolved before would still read the old one."""
    b = FunctionBuilder("f")
    module = module_of(b.finish(b.op(ops.exp_of, b.param("x", f32(N)))))
    runner = check_on_device(module, [[normal(3)]])
    (argument,) = runner.functions["f"].arguments
    assert runner.functions["f"].captured
    runner.replace_buffer(argument.buffer, runner.device.buffer(runner.specs[argument.buffer].size))
    (found,) = runner.call("f", {"x": np.ones(3, np.float32)}).values()
    np.testing.assert_allclose(found, np.full(3, np.e), rtol=1e-5)


def test_after_a_refusal_the_next_call_runs() -> None:
    runner = check_on_device(cast_of_unique(), [[distinct(3)]])
    with pytest.raises(VMError):
        runner.call("f", {"x": distinct(5)})
    (found,) = runner.call("f", {"x": distinct(4)}).values()
    np.testing.assert_allclose(found, np.exp(np.arange(4)), rtol=1e-5)
