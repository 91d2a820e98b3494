"""Nothing moves over a write in place of what it reads, under whatever name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder, Name, ShapeValue, print_module, reference
from webrelax.compiler.symbolic import as_expr

from ..ops.cases import f32, i32, module_of
from .lowered import assert_same, kernels, normal, stages


def cache_function() -> tuple[FunctionBuilder, Name, Name, Name]:
    b = FunctionBuilder("f")
    return b, b.param("cache", f32(1, 6, 1, 2)), b.param("new", f32(2, 1, 2)), b.param("ids", i32(2))


CACHE_ARGS = [normal(1, 6, 1, 2), normal(2, 1, 2, seed=1), np.array([0, 3], np.int32), np.zeros(2, np.int32)]


def test_producers_go_into_an_append() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    after = b.op(ops.kv_append, cache, b.op(ops.exp_of, new), ids, zero)
    modules = stages(module_of(b.finish(after, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["fused_exp_kv_append"]
    _, _, fused = print_module(modules[2]).partition("fused def fused_exp_kv_append(")
    assert fused.startswith("p0: Tensor((2, 1, 2)")
    assert "    # consumes p1, result 0 carries it on\n" in fused
    assert_same(modules, CACHE_ARGS)


def test_what_is_overwritten_is_one_buffer() -> None:
    """The cache, two tensors of integers, and five that are added up: eight buffers, the result none of its own."""
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    for at in range(4):
        new = b.op(ops.add, new, b.param(f"x{at}", f32(2, 1, 2)))
    modules = stages(module_of(b.finish(b.op(ops.kv_append, cache, new, ids, zero), consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["fused_add_add_add_add_kv_append"]
    assert_same(modules, [*CACHE_ARGS, *(normal(2, 1, 2, seed=at) for at in range(4))])


def test_a_cache_that_is_computed_is_not_inlined_into_the_write_over_it() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    after = b.op(ops.kv_append, b.op(ops.negate, cache), new, ids, zero)
    modules = stages(module_of(b.finish(after)))
    assert kernels(modules[-1]) == ["negate", "kv_append"]
    assert_same(modules, CACHE_ARGS)


def test_a_read_of_the_old_state_does_not_move_over_the_write() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    old = b.op(ops.negate, cache, hint="old")
    after = b.op(ops.kv_append, cache, new, ids, zero)
    fresh = b.op(ops.add, old, after)
    modules = stages(module_of(b.finish(after, fresh, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["negate", "kv_append", "add"]
    assert_same(modules, CACHE_ARGS)


def test_nor_does_one_under_another_name() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    same = b.get_item(b.make_tuple(new, b.match_cast(cache, f32(1, 6, 1, 2))), 1)
    old = b.op(ops.negate, same, hint="old")
    after = b.op(ops.kv_append, cache, new, ids, zero)
    fresh = b.op(ops.add, old, after)
    modules = stages(module_of(b.finish(after, fresh, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["negate", "kv_append", "add"]
    assert_same(modules, CACHE_ARGS)


def test_an_append_does_not_compute_from_the_state_that_it_overwrites() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    rows = b.op(ops.take, b.op(ops.reshape, cache, ShapeValue((as_expr(6), as_expr(2)))), b.param("from", i32(2)))
    moved = b.op(ops.add, b.op(ops.reshape, rows, ShapeValue((as_expr(2), as_expr(1), as_expr(2)))), new)
    after = b.op(ops.kv_append, cache, moved, ids, zero)
    modules = stages(module_of(b.finish(after, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["reshape", "fused_take_reshape_add_kv_append"]
    assert_same(modules, [*CACHE_ARGS, np.array([3, 0], np.int32)])


def test_nor_over_a_call_that_overwrites() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    step = replace(b.finish(b.op(ops.kv_append, cache, new, ids, zero), consumed=[(0, 0)]), name="step")
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    old = b.op(ops.negate, cache, hint="old")
    after = b.call(reference(step), cache, new, ids, zero)
    fresh = b.op(ops.add, old, after)
    modules = stages(module_of(step, b.finish(after, fresh, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["negate", "add"]
    assert_same(modules, CACHE_ARGS)


def test_reads_of_the_new_state_are_free_to_move() -> None:
    b, cache, new, ids = cache_function()
    zero = b.param("zero", i32(2))
    after = b.op(ops.kv_append, cache, new, ids, zero)
    total = b.op(ops.tanh, b.op(ops.negate, after))
    modules = stages(module_of(b.finish(after, total, consumed=[(0, 0)])))
    assert kernels(modules[-1]) == ["kv_append", "fused_negate_tanh"]
    assert_same(modules, CACHE_ARGS)
