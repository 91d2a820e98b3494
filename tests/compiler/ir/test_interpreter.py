"""Running graph functions: checks at run time, calls, tuples, choices, writing in place, and planned memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Annotation,
    Callable,
    CallLibrary,
    Constant,
    Function,
    FunctionBuilder,
    Module,
    Object,
    Operator,
    Place,
    Shape,
    ShapeValue,
    Tensor,
    Tuple,
    reference,
    verify,
)
from webrelax.compiler.ir.interpreter import Interpreter, ShapeMismatch
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Var, as_expr

from ..ops.cases import Array, f32, i32, module_of

N, M = Var("n", 1, 8), Var("m")


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def identity(*annotations: Annotation) -> Module:
    b = FunctionBuilder("f")
    params = [b.param(f"a{at}", annotation) for at, annotation in enumerate(annotations)]
    return module_of(b.finish(*params))


@pytest.mark.parametrize(
    ("annotations", "args", "message"),
    [
        ((f32(N),), (normal(9),), "f: a0, dimension 0: n = 9 is outside 1..8"),
        ((f32(N),), (normal(0),), "f: a0, dimension 0: n = 0 is outside 1..8"),
        ((f32(N), f32(4, N)), (normal(3), normal(4, 5)), "f: a1, dimension 1: expected n = 3, got 5"),
        ((f32(N), f32(N * 2)), (normal(3), normal(7)), "f: a1, dimension 0: expected n*2 = 6, got 7"),
        ((f32(N * 2), f32(N)), (normal(7), normal(3)), "f: a0, dimension 0: expected n*2 = 6, got 7"),
        ((f32(4),), (normal(5),), "f: a0, dimension 0: expected 4 = 4, got 5"),
        ((f32(4),), (normal(4).astype(np.float64),), "f: a0: expected f32, got float64"),
        ((Tensor(ndim=2),), (normal(4),), "f: a0: expected rank 2, got 1"),
        ((Shape((N, 4)),), ((2, 5),), "f: a0, dimension 1: expected 4 = 4, got 5"),
        ((Shape(ndim=1),), ((2, 5),), "f: a0: expected rank 1, got 2"),
        ((Tuple((f32(4), f32(N))),), ((normal(4), normal(9)),), "f: a0[1], dimension 0: n = 9 is outside 1..8"),
        ((Tuple((f32(4),)),), ((normal(4), normal(4)),), "f: a0: expected 1 fields, got 2"),
        ((f32(4),), (), "f takes 1 arguments, got 0"),
    ],
)
def test_arguments_are_checked(annotations: tuple[Annotation, ...], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ShapeMismatch) as caught:
        Interpreter(identity(*annotations)).call("f", *args)
    assert str(caught.value) == message


def test_arguments_that_fit() -> None:
    x, y = normal(3), normal(6)
    results = Interpreter(identity(f32(N), Tensor(), Object(), Shape(), f32(N * 2))).call("f", x, y, "any", (1, 2), y)
    assert results == (x, y, "any", (1, 2), y)


def test_requirements() -> None:
    function = identity(f32(N), f32(M)).functions["f"]
    module = module_of(replace(function, requires=((N + M, as_expr(10)),)))
    Interpreter(module).call("f", normal(4), normal(6))
    with pytest.raises(ShapeMismatch, match=r"f: m \+ n = 11 is more than 10 = 10"):
        Interpreter(module).call("f", normal(4), normal(7))


unique = Operator("unique", lambda arguments, _: Tensor(dtype="f32", ndim=1), None)


def figure_3() -> Module:
    """Relax, fig. 3, with a library routine for what has no lowering."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 2, 2))
    flat = b.op(ops.flatten, b.op(ops.reshape, x, ShapeValue((N, as_expr(4)))))
    found = b.emit(CallLibrary("unique", (flat,), (Tensor(dtype="f32", ndim=1),)))
    cast = b.match_cast(found, f32(M))
    return module_of(b.finish(b.op(ops.exp_of, cast), ShapeValue((M, N * 4))))


def test_match_cast_binds_what_only_the_run_knows() -> None:
    x = np.array([1, 2, 3, 1, 2, 3, 1, 1], np.float32).reshape(2, 2, 2)
    for module in (figure_3(), legalize(figure_3())):
        verify(module)
        result, shape = Interpreter(module, routines={"unique": np.unique}).call("f", x)
        np.testing.assert_allclose(result, np.exp([1, 2, 3]), rtol=1e-6)
        assert shape == (3, 8)


def test_match_cast_is_checked() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", Tensor(dtype="f32", ndim=2)), b.param("y", f32(N))
    module = module_of(b.finish(b.match_cast(x, f32(M, N), hint="checked"), y))
    Interpreter(module).call("f", normal(5, 3), normal(3))
    with pytest.raises(ShapeMismatch) as caught:
        Interpreter(module).call("f", normal(5, 4), normal(3))
    assert str(caught.value) == "f: checked, dimension 1: expected n = 3, got 4"


def test_results_of_library_routines_are_checked() -> None:
    with pytest.raises(ShapeMismatch, match="f: unique: expected rank 1, got 2"):
        Interpreter(figure_3(), routines={"unique": lambda x: x[None]}).call("f", normal(2, 2, 2))


def test_an_operator_without_lowering_cannot_run() -> None:
    b = FunctionBuilder("f")
    module = legalize(module_of(b.finish(b.op(unique, b.param("x", f32(3))))))
    with pytest.raises(NotImplementedError, match="unique has no lowering"):
        Interpreter(module).call("f", normal(3))


@pytest.mark.parametrize("flag", [0, 1, -3])
def test_choices(flag: int) -> None:
    b = FunctionBuilder("f")
    x, condition = b.param("x", f32(N)), b.param("condition", i32())
    then, orelse = b.arm(), b.arm()
    chosen = b.if_else(
        condition,
        then.block(then.op(ops.concat, x, then.op(ops.negate, x), axis=0)),
        orelse.block(orelse.op(ops.relu, x)),
    )
    assert chosen.annotation == Tensor(dtype="f32", ndim=1)
    for module in (module_of(b.finish(chosen)), legalize(module_of(b.finish(chosen)))):
        verify(module)
        values = normal(3)
        expected = np.concatenate([values, -values]) if flag else np.maximum(values, 0)
        assert (Interpreter(module).call("f", values, np.array(flag, np.int32)) == expected).all()


def double() -> Function:
    b = FunctionBuilder("double")
    x = b.param("x", f32(M))
    return b.finish(b.op(ops.concat, x, x, axis=0))


def test_functions_by_name_and_as_values() -> None:
    b = FunctionBuilder("twice")
    callee, x = b.param("callee", Callable((f32(M),), f32(M * 2))), b.param("x", f32(M))
    twice = b.finish(b.call(callee, b.call(callee, x)))
    b = FunctionBuilder("main")
    x = b.param("x", f32(N))
    result = b.call(reference(twice), reference(double()), x)
    assert result.annotation == f32(N * 4)
    module = module_of(double(), twice, b.finish(result))
    verify(module)
    values = normal(3)
    assert (Interpreter(module).call("main", values) == np.tile(values, 4)).all()


def test_a_function_value_of_another_signature_is_refused_at_run_time() -> None:
    b = FunctionBuilder("f")
    callee, x = b.param("callee", Callable((f32(M),), f32(M))), b.param("x", f32(M))
    module = module_of(double(), b.finish(b.call(callee, x)))
    verify(module)
    with pytest.raises(ShapeMismatch, match=r"f: callee: expected Callable\(.*\), got Callable\("):
        Interpreter(module).call("f", "double", normal(3))


def test_a_called_function_checks_its_arguments() -> None:
    b = FunctionBuilder("inner")
    inner = b.finish(b.param("a", f32(M)), b.param("b", f32(M)))
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(Var("k"))), b.param("y", Tensor(dtype="f32", ndim=1))
    module = module_of(inner, b.finish(b.call(reference(inner), x, y)))
    verify(module)
    with pytest.raises(ShapeMismatch, match="inner: b, dimension 0: expected m = 3, got 4"):
        Interpreter(module).call("f", normal(3), normal(4))


def test_tuples_and_weights() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    pair = b.make_tuple(x, Constant("w", f32(1)), b.make_tuple(ShapeValue((N,))))
    inner = b.get_item(b.get_item(pair, 2), 0)
    y = b.op(ops.add, b.get_item(pair, 0), b.get_item(pair, 1))
    module = module_of(b.finish(y, inner))
    verify(module)
    values = normal(4)
    result, shape = Interpreter(module, {"w": np.array([2], np.float32)}).call("f", values)
    assert (result == values + 2).all()
    assert shape == (4,)


def test_state_is_overwritten_through_a_called_function() -> None:
    b = FunctionBuilder("step")
    cache, new, ids = b.param("cache", f32(1, 8, 1, 2)), b.param("new", f32(N, 1, 2)), b.param("ids", i32(N))
    zero = b.param("zero", i32(N))
    step = b.finish(b.op(ops.kv_append, cache, new, ids, zero), consumed=[(0, 0)])
    b = FunctionBuilder("main")
    args = [b.param(p.name, p.annotation) for p in step.params]
    module = module_of(step, b.finish(b.call(reference(step), *args), consumed=[(0, 0)]))
    for stage in (module, legalize(module)):
        verify(stage)
        state, rows = np.zeros((1, 8, 1, 2), np.float32), normal(2, 1, 2)
        result = Interpreter(stage).call("main", state, rows, np.array([5, 0], np.int32), np.zeros(2, np.int32))
        assert result is state
        assert (state[0, [5, 0]] == rows).all()
        assert (state[0, [1, 2, 3, 4, 6, 7]] == 0).all()


def planned(places: list[Place]) -> Module:
    """relu, exp and their sum, at the given places of one storage."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    clipped, grown = b.op(ops.relu, x), b.op(ops.exp_of, x)
    module = legalize(module_of(b.finish(b.op(ops.add, clipped, grown))))
    function = module.functions["f"]
    bindings = [replace(at, places=(place,)) for at, place in zip(function.body.bindings, places, strict=True)]
    body = replace(function.body, bindings=tuple(bindings))
    return Module({"f": replace(function, body=body)}, module.programs, {"s": 64})


def test_a_plan_is_run_in_its_storages() -> None:
    x = normal(4)
    expected = np.maximum(x, 0) + np.exp(x)
    result = Place("result0", 0, 16)
    good = Interpreter(planned([Place("s", 0, 16), Place("s", 16, 16), result]))
    np.testing.assert_allclose(good.call("f", x), expected)
    assert (good.storages["s"] == 0xA5).all()  # both tensors died and were poisoned
    overlapping = Interpreter(planned([Place("s", 0, 16), Place("s", 8, 16), result]))
    assert not np.allclose(overlapping.call("f", x), expected)
    with pytest.raises(ShapeMismatch, match=r"f: \(4,\) f32 does not fit into s\[0:8\]"):
        Interpreter(planned([Place("s", 0, 8), Place("s", 16, 16), result])).call("f", x)
