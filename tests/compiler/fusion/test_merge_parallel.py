"""Independent calls side by side: which are joined, which are not, and that the values stay the same."""

from __future__ import annotations

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.fusion.merge_parallel import merge_parallel
from webrelax.compiler.ir import CallTIR, Constant, FunctionBuilder, GetItem, Module, Name, Shape, ShapeValue, verify
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes.legalize import legalize
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU

from ..ops.cases import f32, i32, module_of
from .lowered import normal

N = Var("n", 1, 64)


def calls(module: Module) -> list[int]:
    """The number of results of each tensor-program call, in order."""
    (function,) = module.functions.values()
    return [len(b.value.outputs) for b in function.body.bindings if isinstance(b.value, CallTIR)]


def linear(b: FunctionBuilder, x: Name, rows: int, name: str, columns: int = 8) -> Name:
    return b.op(ops.linear, x, Constant(name, f32(rows, columns)), hint=name)


def test_projections_of_one_input_become_one_kernel() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    q, k, v = (linear(b, x, rows, name) for rows, name in ((12, "q"), (4, "k"), (4, "v")))
    module = legalize(module_of(b.finish(q, k, v)))
    merged = merge_parallel(module, WEBGPU)
    verify(merged)
    assert calls(merged) == [3]
    weights = {"q": normal(12, 8), "k": normal(4, 8, seed=1), "v": normal(4, 8, seed=2)}
    x_value = normal(5, 8, seed=3)
    before, after = (Interpreter(m, weights).call("f", x_value) for m in (module, merged))
    for a, b_ in zip(before, after, strict=True):
        assert np.array_equal(a, b_)


def test_a_call_that_needs_the_other_s_result_stays_behind_it() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    first = linear(b, x, 8, "a")
    second = b.op(ops.add, x, first)
    third = linear(b, x, 8, "c")
    module = legalize(module_of(b.finish(second, third)))
    merged = merge_parallel(module, WEBGPU)
    verify(merged)
    (function,) = merged.functions.values()
    assert calls(merged) == [2, 1]
    # The third call moved over the second to the first.
    assert [b_.name.name for b_ in function.body.bindings if isinstance(b_.value, GetItem)] == ["a", "c"]


def test_calls_without_a_common_input_stay_apart() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(N, 8)), b.param("y", f32(N, 8))
    module = legalize(module_of(b.finish(linear(b, x, 8, "a"), linear(b, y, 8, "b"))))
    assert calls(merge_parallel(module, WEBGPU)) == [1, 1]


def test_no_more_buffers_than_a_kernel_may_bind() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    module = legalize(module_of(b.finish(*(linear(b, x, 4, f"w{at}") for at in range(5)))))
    # One input, and a weight and a result each: 1 + 2 * 3 = 7 buffers, the next would make it 9.
    assert calls(merge_parallel(module, WEBGPU)) == [3, 2]


def test_a_read_does_not_move_over_the_write_of_what_it_reads() -> None:
    b = FunctionBuilder("f")
    cache, new = b.param("cache", f32(1, 64, 1, 2)), b.param("new", f32(N, 1, 2))
    positions, sequences = b.param("positions", i32(N)), b.param("sequences", i32(N))
    before = b.op(ops.flatten, cache)
    doubled = b.op(ops.multiply, new, new)
    after = b.op(ops.kv_append, cache, new, positions, sequences)
    function = b.finish(before, doubled, after, consumed=[(0, 2)])
    module = legalize(module_of(function))
    merged = merge_parallel(module, WEBGPU)
    verify(merged)
    args = (normal(1, 64, 1, 2), normal(3, 1, 2, seed=1), np.arange(3, dtype=np.int32), np.zeros(3, np.int32))
    expected = Interpreter(module).call("f", args[0].copy(), *args[1:])
    actual = Interpreter(merged).call("f", args[0].copy(), *args[1:])
    for a, b_ in zip(expected, actual, strict=True):
        assert np.array_equal(a, b_)
    assert np.array_equal(actual[0], args[0].ravel())


def test_nothing_moves_over_a_match_cast() -> None:
    m = Var("m", 1, 8)
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(N, 8)), b.param("y", f32(4, 8))
    first = linear(b, x, 8, "a")
    b.match_cast(b.param("shape", Shape(ndim=1)), Shape((m,)))
    second = b.op(ops.reshape, linear(b, x, 8, "c"), ShapeValue((N * 8,)))
    module = legalize(module_of(b.finish(first, second, b.op(ops.add, y, y))))
    assert calls(merge_parallel(module, WEBGPU))[0] == 1
