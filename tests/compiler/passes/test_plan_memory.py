"""Plans: no two live tensors overlap, and a planned program computes what an unplanned one does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from webrelax.compiler import ops
from webrelax.compiler.codegen import generate
from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import (
    CallLibrary,
    Function,
    FunctionBuilder,
    Module,
    ModuleBuilder,
    Name,
    ShapeValue,
    Tensor,
    all_bindings,
    print_module,
    reference,
    verify,
)
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.ir.liveness import tensor_lives
from webrelax.compiler.passes import (
    legalize,
    lower_shapes,
    peak_bytes,
    plan_memory,
    planned_bytes,
    tensor_bytes,
    unplanned_bytes,
)
from webrelax.compiler.pipeline import passes
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.wgsl.library import LIBRARY

from ..ops.cases import Array, f32, i32, module_of
from . import random_programs
from .memory_trace import Trace, Traced

N, UNBOUND = Var("n", 1, 64), Var("n", 1)
CACHE = f32(1, 5, 1, 2)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_same(actual: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)
    else:
        np.testing.assert_array_equal(actual, expected)


def checked(module: Module, *runs: Sequence[Array], name: str = "f") -> Module:
    """The legalized and planned module, traced and run on copies of these arguments."""
    module = legalize(module)
    planned = plan_memory(module, WEBGPU)
    verify(planned)
    for run in runs:
        trace = Trace(planned)
        trace.run(name, [Traced("", a.shape, value=int(a.flat[0]) if a.dtype == np.int32 else 0) for a in run])
        trace.check()
        given, again = [a.copy() for a in run], [a.copy() for a in run]
        assert_same(Interpreter(planned).call(name, *again), Interpreter(module).call(name, *given))
        assert_same(again, given)
    return planned


def places(planned: Module, name: str = "f") -> dict[str, str]:
    """The storages of each binding of a function."""
    bindings = all_bindings(planned.functions[name].body)
    return {b.name.name: ", ".join(p.storage for p in b.places) for b in bindings if b.places}


# Any program


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_programs.modules(), st.integers(1, 5), st.integers(0, 5), st.integers(0, 5))
def test_random_programs(program: random_programs.Random, n: int, m: int, k: int) -> None:
    verify(program.module)
    planned = plan_memory(program.module, WEBGPU)
    verify(planned)
    note(print_module(replace(planned, programs={})))
    for flag in (0, 1):
        trace = Trace(planned)
        trace.run("main", [Traced("", a.shape, value=flag) for a in random_programs.arguments(n, m, k, flag)])
        trace.check()
        given, again = (random_programs.arguments(n, m, k, flag) for _ in range(2))
        expected = Interpreter(program.module).call("main", *given)
        assert_same(Interpreter(planned).call("main", *again), expected)
        assert_same(again, given)


# Bounds known


def appending() -> tuple[Function, list[Array]]:
    """Overwrites rows of a cache, and arguments."""
    b = FunctionBuilder("step")
    cache, new, ids = b.param("cache", CACHE), b.param("new", f32(2, 1, 2)), b.param("ids", i32(2))
    step = b.finish(b.op(ops.kv_append, cache, new, ids, b.param("zeros", i32(2))), consumed=[(0, 0)])
    return step, [normal(1, 5, 1, 2), normal(2, 1, 2), np.array([3, 1], np.int32), np.zeros(2, np.int32)]


@pytest.mark.parametrize("called", [False, True])
def test_what_a_call_overwrites_is_apart_from_what_it_reads(called: bool) -> None:
    step, arguments = appending()
    b = FunctionBuilder("f")
    x, new, ids, zeros = (b.param(p.name, p.annotation) for p in step.params)
    # There is a storage with room for both.
    large = b.op(ops.row_sum, b.op(ops.relu, b.param("large", f32(64, 4))))
    given = (b.op(ops.tanh, x), b.op(ops.negate, new), ids, zeros)
    after = b.call(reference(step), *given) if called else b.op(ops.kv_append, *given)
    module = module_of(step, b.finish(large, b.op(ops.flatten, after)))
    spots = places(checked(module, [*arguments, normal(64, 4)]))
    assert spots["tanh"] != spots["negate"]
    assert spots["relu"] in (spots["tanh"], spots["negate"])


def test_fields_of_a_tuple_die_one_by_one() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    pair = b.make_tuple(b.op(ops.relu, x), b.op(ops.negate, x))
    # Each storage holds one tensor at a time.
    first = b.op(ops.exp_of, b.get_item(pair, 0))
    second = b.op(ops.add, first, b.get_item(pair, 1))
    planned = checked(module_of(b.finish(b.op(ops.row_sum, second))), [normal(5, 4)])
    assert set(planned.storages.values()) == {64 * 16}
    assert places(planned)["add"] == places(planned)["relu"]


def test_offsets_are_aligned_and_sizes_whole_vectors() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(3))
    sums = [b.op(op, x) for op in [ops.relu, ops.negate, ops.tanh] * 4]
    while len(sums) > 1:
        sums = [b.op(ops.add, *sums[at : at + 2]) for at in range(0, len(sums) - 1, 2)] + sums[len(sums) & ~1 :]
    planned = checked(module_of(b.finish(sums[0])), [normal(3)])
    spots = [p for binding in planned.functions["f"].body.bindings for p in binding.places]
    assert {p.size for p in spots} == {16}
    assert {p.offset % 256 for p in spots} == {0}
    assert any(p.offset for p in spots)  # there are more tensors at once than storages


def test_storages_stay_within_the_limits() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(64))
    parts = [b.op(ops.relu, x) for _ in range(20)]
    total = parts[0]
    for part in parts[1:]:
        total = b.op(ops.add, total, part)
    module = legalize(module_of(b.finish(total)))
    planned = plan_memory(module, replace(WEBGPU, buffer_size=512, binding_size=256))
    assert set(planned.storages.values()) == {256, 512}
    with pytest.raises(WebrelaxError, match=r"^f: relu takes 256 bytes at the bounds, more than the 255 of a binding"):
        plan_memory(module, replace(WEBGPU, binding_size=255))


def test_functions_that_the_host_calls_share_storages() -> None:
    functions = []
    for name in ("f", "g"):
        b = FunctionBuilder(name)
        functions.append(b.finish(b.op(ops.row_sum, b.op(ops.relu, b.param("x", f32(N, 4))))))
    planned = checked(module_of(*functions), [normal(3, 4)])
    assert places(planned, "f") == places(planned, "g") == {"relu": "s0", "row_sum": "result0"}
    assert planned.storages == {"s0": 64 * 16}
    assert planned_bytes(planned) == 64 * 16 + 64 * 4


# Bounds unknown


def test_a_smaller_tensor_takes_a_larger_block() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(UNBOUND, 8)), b.param("y", f32(Var("m", 0), 3))
    large = b.op(ops.row_sum, b.op(ops.relu, x))
    small = b.op(ops.row_sum, b.op(ops.relu, b.op(ops.row_sum, b.op(ops.exp_of, x))))
    other = b.op(ops.row_sum, b.op(ops.relu, y))
    planned = checked(module_of(b.finish(large, small, other)), [normal(9, 8), normal(4, 3)])
    # exp takes relu's block, relu_1 that of exp; nothing is known of m and n.
    assert planned.storages == {"f.block0": UNBOUND * 32, "f.block1": UNBOUND * 4, "f.block2": Var("m", 0) * 12}
    assert places(planned)["exp"] == places(planned)["relu_1"] == "f.block0"
    assert places(planned)["row_sum"] == "result0"


def test_tensors_with_and_without_bounds() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(UNBOUND, 4))
    last = b.op(ops.relu, b.op(ops.last_row, b.op(ops.exp_of, x)))
    planned = checked(module_of(b.finish(b.op(ops.negate, last))), [normal(9, 4)])
    assert planned.storages == {"s0": 16, "s1": 16, "f.block0": UNBOUND * 16}
    with pytest.raises(WebrelaxError, match=r"^f\.block0 takes n\*16 bytes, which has no upper bound: declare one for"):
        planned_bytes(planned)
    with pytest.raises(WebrelaxError, match=r"^f: exp takes n\*16 bytes, which has no upper bound: declare one for"):
        unplanned_bytes(legalize(module_of(b.finish(last))))


def test_devices_need_bounds() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    cast = b.match_cast(x, f32(UNBOUND))
    module = module_of(b.finish(b.op(ops.row_sum, b.op(ops.reshape, cast, ShapeValue((as_expr(1), UNBOUND))))))
    lowered = lower_shapes(plan_memory(legalize(module), WEBGPU))
    with pytest.raises(WebrelaxError, match=r"^f\.block0 takes n\*4 bytes, which has no upper bound: declare one for"):
        generate(lowered, WEBGPU, (), {}, {})


def test_sizes_that_only_the_run_tells() -> None:
    """Relax, fig. 3: how many elements are unique."""
    b = FunctionBuilder("f")
    k = Var("k", 0)
    found = b.emit(CallLibrary("unique", (b.param("x", f32(UNBOUND)),), (Tensor(dtype="f32", ndim=1),)))
    grown = b.op(ops.exp_of, b.op(ops.relu, b.match_cast(found, f32(k))))
    module = legalize(module_of(b.finish(b.op(ops.negate, grown))))
    planned = plan_memory(module, WEBGPU)
    assert planned.storages == {"f.block0": k * 4, "f.block1": k * 4}
    x = np.array([1, 2, 1, 3, 1, 2], np.float32)
    result = Interpreter(planned, routines={"unique": np.unique}).call("f", x)
    np.testing.assert_allclose(result, -np.exp([1, 2, 3]), rtol=1e-6)


def test_a_block_of_an_arm_stays_in_it() -> None:
    b = FunctionBuilder("f")
    x, flag = b.param("x", f32(UNBOUND)), b.param("flag", i32())
    then, orelse = b.arm(), b.arm()
    wide = then.op(ops.concat, then.op(ops.relu, x), x, axis=0)
    pair = then.op(ops.reshape, then.op(ops.exp_of, wide), ShapeValue((UNBOUND, as_expr(2))))
    small = orelse.op(ops.tanh, orelse.op(ops.negate, x))
    chosen = b.if_else(flag, then.block(then.op(ops.row_sum, pair)), orelse.block(small))
    module = module_of(b.finish(b.op(ops.sigmoid, b.op(ops.add, chosen, b.op(ops.silu, x)))))
    planned = checked(module, *([normal(4), np.array(flag, np.int32)] for flag in (0, 1)))
    spots = places(planned)
    arms = [{spots[name] for name in names} for names in (("relu", "concat", "exp", "reshape"), ("negate", "tanh"))]
    assert not arms[0] & arms[1]
    assert not {spots["silu"], spots["add"]} & (arms[0] | arms[1])
    assert spots["reshape"] == spots["concat"]


# Functions


def doubling() -> Function:
    b = FunctionBuilder("double")
    x = b.param("x", f32(Var("p", 1, 64)))
    return b.finish(b.op(ops.negate, b.op(ops.add, x, b.op(ops.relu, x))))


def test_results_of_two_calls_of_a_function() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    callee = reference(doubling())
    first, second = b.call(callee, x), b.call(callee, b.op(ops.exp_of, x))
    planned = checked(module_of(doubling(), b.finish(b.op(ops.subtract, first, second))), [normal(3)])
    # A function and those that it calls have different storages.
    assert places(planned) == {"exp": "level1.s0", "subtract": "result0"}
    assert places(planned, "double") == {"relu": "s0", "add": "s1", "negate": "result0"}


def test_a_function_that_may_call_itself_is_left_alone() -> None:
    """f(self, x, flag) = self(self, -x, 0) + x if flag else exp(x), whose tensors live twice."""
    b = FunctionBuilder("f")
    signature = Tensor((N,), "f32")
    x, flag, zero = b.param("x", signature), b.param("flag", i32()), b.param("zero", i32())
    itself = reference(Function("f", (x, flag, zero), b.block(x), signature))
    negated = b.op(ops.negate, x)
    then, orelse = b.arm(), b.arm()
    deeper = then.call(itself, negated, zero, zero)
    chosen = b.if_else(
        flag, then.block(then.op(ops.add, deeper, negated)), orelse.block(orelse.op(ops.exp_of, negated))
    )
    recursive = b.finish(b.op(ops.relu, chosen))
    b = FunctionBuilder("main")
    arguments = [b.param(p.name, p.annotation) for p in recursive.params]
    main = b.finish(b.op(ops.tanh, b.call(reference(recursive), *arguments)))
    ints = [np.array(flag, np.int32) for flag in (1, 0)]
    planned = checked(module_of(recursive, main, doubling()), [normal(3), *ints], name="main")
    assert places(planned, "f") == places(planned, "main") == {}
    assert places(planned, "double")


def test_a_function_value_may_be_any_function_of_its_signature() -> None:
    def apply(name: str, times: int) -> Function:
        b = FunctionBuilder(name)
        callee, x = b.param("callee", reference(doubling()).annotation), b.param("x", f32(N))
        for _ in range(times):
            x = b.call(callee, b.op(ops.relu, x))
        return b.finish(b.op(ops.tanh, x))

    planned = plan_memory(legalize(module_of(doubling(), apply("f", 2))), WEBGPU)
    assert places(planned) == {"relu": "level1.s0", "relu_1": "level1.s1", "tanh": "result0"}
    x = normal(3)
    unplanned = Interpreter(legalize(module_of(doubling(), apply("f", 2))))
    assert_same(Interpreter(planned).call("f", "double", x), unplanned.call("f", "double", x))


# Size and speed


def test_numbers() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    first = b.op(ops.relu, x)
    second = b.op(ops.add, b.op(ops.exp_of, first), first)
    module = legalize(module_of(b.finish(b.op(ops.row_sum, second))))
    size, result = 64 * 16, 64 * 4
    assert tensor_bytes(module, module.functions["f"]) == {
        ("relu", 0): size, ("exp", 0): size, ("add", 0): size, ("row_sum", 0): result,
    }  # fmt: skip
    assert unplanned_bytes(module) == {"f": 3 * size + result}
    assert peak_bytes(module, module.functions["f"]) == 3 * size
    assert planned_bytes(plan_memory(module, WEBGPU)) == 3 * size + result


SMOLLM2 = LlamaConfig(49152, 576, 3, 9, 3, 64, 1536, 1e-5, 1e5, True, True)


@pytest.mark.parametrize("library", [LIBRARY, ()], ids=["library", "generated"])
def test_a_model_needs_little_more_than_what_lives_at_once(library: Any) -> None:
    """Of SmolLM2's size, but for the number of layers, on which nothing depends."""
    module = export_decoder(Llama(SMOLLM2, 2048), 2048, 128).module
    for step in passes(library):
        if step.name == "plan_memory":
            break
        module = step.run(module, WEBGPU)
    for name, function in module.functions.items():
        lives, sizes = tensor_lives(module, function), tensor_bytes(module, function)
        # Results are outside reuse.
        change = [0] * (lives.end + 2)
        for tensor in (t for t in sizes if lives.dies[t] < lives.end):
            change[lives.born[tensor]] += sizes[tensor]
            change[lives.dies[tensor] + 1] -= sizes[tensor]
        alone = plan_memory(replace(module, functions={name: function}), WEBGPU)
        used = sum(size for size in alone.storages.values() if isinstance(size, int))
        assert used <= 1.25 * max(accumulate(change))
    together = plan_memory(module, WEBGPU)
    assert len(together.storages) <= 8
    peak = max(peak_bytes(module, function) for function in module.functions.values())
    assert sum(size for size in together.storages.values() if isinstance(size, int)) <= 1.25 * peak


@pytest.mark.parametrize("n", [N, UNBOUND])
def test_ten_thousand_tensors(n: Var) -> None:
    b = FunctionBuilder("f")
    values: list[Name] = [b.param("x", f32(n))]
    for at in range(10_000):
        far = values[max(0, at - 100)]
        operands = (ops.add, values[-1], far) if at % 3 else (ops.relu, values[-1])
        values.append(b.op(*operands, hint=f"v{at}"))
    builder = ModuleBuilder()
    builder.add_function(b.finish(values[-1]))
    module = legalize(builder.finish())
    start = time.process_time()
    planned = plan_memory(module, WEBGPU)
    assert time.process_time() - start < 6
    assert len(planned.storages) < 100
