"""inline_calls: what it leaves, what it refuses, and the checks of a boundary that it keeps."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.ir import (
    Callable,
    CallFunction,
    Constant,
    Function,
    FunctionBuilder,
    FunctionRef,
    MatchCast,
    Module,
    Shape,
    ShapeValue,
    all_bindings,
    print_function,
    print_module,
    reference,
    verify,
)
from webrelax.compiler.ir.interpreter import Interpreter, ShapeMismatch
from webrelax.compiler.passes import inline_calls
from webrelax.compiler.symbolic import Var

from ..ops.cases import f32, i32, module_of

N, K = Var("n", 1, 8), Var("k", 1, 16)


def inlined(*functions: Function) -> Module:
    module = module_of(*functions)
    verify(module)
    after = inline_calls(module)
    verify(after)
    assert print_module(inline_calls(after)) == print_module(after)
    return after


def casts(function: Function) -> list[tuple[str | None, Any]]:
    """(what it is about, annotation) of each check."""
    values = [b.value for b in all_bindings(function.body)]
    return [(v.about, v.annotation) for v in values if isinstance(v, MatchCast)]


def calls(function: Function) -> int:
    return sum(isinstance(b.value, CallFunction) for b in all_bindings(function.body))


def squares(least: int = 1, most: int = 16) -> Function:
    """squares(x: (k,)) -> (k,)"""
    b = FunctionBuilder("squares")
    x = b.param("x", f32(Var("k", least, most)))
    return b.finish(b.op(ops.multiply, x, x, hint="square"))


def test_the_body_takes_the_place_of_the_call() -> None:
    callee = squares()
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    square = b.call(reference(callee), x, hint="y")
    module = inlined(callee, b.finish(b.op(ops.exp_of, b.call(reference(callee), square, hint="z"), hint="e")))
    assert print_function(module.functions["f"]).splitlines() == [
        'def f(x: Tensor((n,), "f32")) -> Tensor((n,), "f32"):',
        '    y: Tensor((n,), "f32") = multiply(x, x)',
        '    z: Tensor((n,), "f32") = multiply(y, y)',
        '    e: Tensor((n,), "f32") = exp(z)',
        "    return e",
    ]
    assert set(module.functions) == {"squares", "f"}


def test_names_and_variables_of_the_callee_do_not_meet_the_callers() -> None:
    """Both have x, y and n; the callee's n is the caller's 2 n."""
    n = Var("n", 1, 16)
    b = FunctionBuilder("inner")
    x = b.param("x", f32(n))
    y = b.op(ops.concat, x, x, axis=0, hint="y")
    inner = b.finish(b.op(ops.exp_of, y, hint="x_1"))
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    y = b.op(ops.concat, x, b.op(ops.negate, x, hint="x_1"), axis=0, hint="y")
    called = b.call(reference(inner), y, hint="z")
    module = inlined(inner, b.finish(b.op(ops.concat, called, y, axis=0)))
    function = module.functions["f"]
    names = [binding.name.name for binding in all_bindings(function.body)]
    assert len(names) == len(set(names))
    assert function.result == f32(N * 6)
    value = np.arange(1, 4, dtype=np.float32)
    pair = np.concatenate([value, -value])
    expected = np.concatenate([np.exp(pair), np.exp(pair), pair])
    np.testing.assert_allclose(Interpreter(module).call("f", value), expected, rtol=1e-6)


def test_what_is_proved_needs_no_check() -> None:
    b = FunctionBuilder("f")
    module = inlined(squares(), b.finish(b.call(reference(squares()), b.param("x", f32(N)))))
    assert casts(module.functions["f"]) == []


@pytest.mark.parametrize(("least", "most"), [(2, 16), (1, 7)])
def test_bounds_that_are_not_proved_are_checked(least: int, most: int) -> None:
    callee = squares(least, most)
    b = FunctionBuilder("f")
    module = inlined(callee, b.finish(b.call(reference(callee), b.param("x", f32(N)))))
    ((about, annotation),) = casts(module.functions["f"])
    assert about == "argument x of squares"
    (dim,) = annotation.shape
    assert (dim.lower, dim.upper) == (least, most)
    run = Interpreter(module)
    outside = least - 1 if least > 1 else most + 1
    np.testing.assert_allclose(run.call("f", np.full(5, 3, np.float32)), np.full(5, 9))
    with pytest.raises(ShapeMismatch, match=f"f: argument x of squares, dimension 0: k = {outside} is outside"):
        run.call("f", np.ones(outside, np.float32))


def test_a_dimension_that_is_not_proved_is_checked() -> None:
    """pairs takes (2 k,) with k from a shape; the caller knows only that there are n."""
    b = FunctionBuilder("pairs")
    b.param("half", Shape((K,)))
    pairs = b.finish(b.op(ops.exp_of, b.param("x", f32(K * 2))))
    b = FunctionBuilder("f")
    half, x = b.param("half", Shape((Var("m", 1, 8),))), b.param("x", f32(N))
    module = inlined(pairs, b.finish(b.call(reference(pairs), half, x)))
    ((about, annotation),) = casts(module.functions["f"])
    assert (about, str(annotation)) == ("argument x of pairs", 'Tensor((m*2,), "f32")')


def test_functions_that_take_functions_go_once_nothing_names_them() -> None:
    callee = squares()
    b = FunctionBuilder("apply")
    function, x = b.param("function", reference(callee).annotation), b.param("x", f32(N))
    apply = b.finish(b.call(function, x))
    b = FunctionBuilder("f")
    module = inlined(callee, apply, b.finish(b.call(reference(apply), reference(callee), b.param("x", f32(N)))))
    assert set(module.functions) == {"squares", "f"}
    assert calls(module.functions["f"]) == 0
    # Nothing calls apply here: it is what the module is for.
    assert set(inlined(callee, apply).functions) == {"squares", "apply"}


def test_a_function_that_gives_a_function() -> None:
    callee = squares()
    b = FunctionBuilder("choose")
    b.param("x", f32(N))
    choose = b.finish(reference(callee))
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    module = inlined(callee, choose, b.finish(b.call(b.call(reference(choose), x), x)))
    assert set(module.functions) == {"squares", "f"}
    assert calls(module.functions["f"]) == 0


def recursion() -> Function:
    signature = Callable((f32(N),), f32(N))
    b = FunctionBuilder("f")
    return b.finish(b.call(FunctionRef("g", signature), b.param("x", f32(N))))


def test_recursion_is_refused() -> None:
    b = FunctionBuilder("g")
    second = b.finish(b.call(FunctionRef("f", Callable((f32(N),), f32(N))), b.param("x", f32(N))))
    with pytest.raises(WebrelaxError, match=r"f calls itself \(f -> g -> f\), which cannot be compiled: unroll it"):
        inline_calls(module_of(recursion(), second))


def test_arms_that_compute_before_they_choose_a_function_are_refused() -> None:
    callee = squares()
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32(1)), b.param("x", f32(N))
    then = b.arm()
    then.op(ops.exp_of, x)
    chosen = b.if_else(flag, then.block(reference(callee)), b.arm().block(reference(callee)), hint="chosen")
    with pytest.raises(WebrelaxError, match="f: chosen chooses between functions, so its arms must only name them"):
        inline_calls(module_of(callee, b.finish(b.call(chosen, x))))


def test_many_levels_of_calls_that_each_call_twice_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 levels would be 2^10 bindings."""
    monkeypatch.setattr(sys.modules[inline_calls.__module__], "MOST_BINDINGS", 1000)
    functions = [squares()]
    for level in range(10):
        b = FunctionBuilder(f"level{level}")
        below = reference(functions[-1])
        functions.append(b.finish(b.call(below, b.call(below, b.param("x", f32(N))))))
    with pytest.raises(WebrelaxError, match="has more than 1000 bindings once its calls are inlined"):
        inline_calls(module_of(*functions))


def test_weights_and_shapes_pass_through() -> None:
    b = FunctionBuilder("inner")
    shape, w = b.param("shape", Shape((K,))), b.param("w", f32(4))
    inner = b.finish(b.op(ops.add, w, w), shape)
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    pair = b.call(reference(inner), ShapeValue((N + 1,)), Constant("w", f32(4)))
    module = inlined(inner, b.finish(b.get_item(pair, 0), b.get_item(pair, 1), x))
    weight = np.arange(4, dtype=np.float32)
    total, shape_value, _ = Interpreter(module, {"w": weight}).call("f", np.ones(3, np.float32))
    np.testing.assert_array_equal(total, 2 * weight)
    assert shape_value == (4,)
