"""dispatch_library: which calls become routines, by a table that the pass is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.ir import (
    Atom,
    Call,
    CallLibrary,
    FunctionBuilder,
    Module,
    Shape,
    ShapeValue,
    Tensor,
    all_bindings,
    print_function,
    verify,
)
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes import Entry, LibraryBuilder, Routine, dispatch_library, legalize
from webrelax.compiler.pipeline import compile
from webrelax.compiler.symbolic import Expr, Var, as_expr
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.wgsl.library import LIBRARY

from ..ops.cases import f32, i32, module_of

N, M = Var("n", 1, 8), Var("m", 0, 511)
assert ops.relu.lower
assert ops.silu.lower
RELU = Routine("my_relu", ops.relu.lower)
SILU = Routine("my_silu", ops.silu.lower)


def attention(tokens: Expr | int) -> Module:
    b = FunctionBuilder("f")
    cache = f32(1, 512, 2, 64)
    q, k, v = b.param("q", f32(tokens, 4, 64)), b.param("k", cache), b.param("v", cache)
    positions, sequences = b.param("positions", i32(tokens)), b.param("sequences", i32(tokens))
    b.param("past", Shape((M,)))
    length = ShapeValue((M + tokens,))
    result = b.op(ops.attention, q, k, v, positions, sequences, length, scale=0.125, window=0, softcap=0.0)
    function = b.finish(b.op(ops.silu, result))
    return module_of(replace(function, requires=((M + tokens, as_expr(512)),)))


def activations(*shapes: Sequence[Expr | int]) -> Module:
    b = FunctionBuilder("f")
    values = [b.op(ops.relu, b.op(ops.silu, b.param(f"x{at}", f32(*shape)))) for at, shape in enumerate(shapes)]
    return module_of(b.finish(*values))


def dispatched(module: Module, table: Sequence[Entry]) -> Module:
    after = dispatch_library(module, WEBGPU, table)
    verify(after)
    return after


def called(module: Module) -> list[str]:
    """The routines and operators that `f` calls, in order."""
    values = [b.value for b in all_bindings(module.functions["f"].body)]
    return [v.routine if isinstance(v, CallLibrary) else v.op.name for v in values if isinstance(v, Call | CallLibrary)]


PARAMS = """\
k: Tensor((1, 512, 2, 64), "f32"), v: Tensor((1, 512, 2, 64), "f32"), """
ATTRIBUTES = "scale=0.125, softcap=0.0, window=0"
PART_ATTRIBUTES = "scale=0.125, softcap=0.0, split=256, window=0"

BEFORE = f"""\
def f(q: Tensor((1, 4, 64), "f32"), {PARAMS}positions: Tensor((1,), "i32"), sequences: Tensor((1,), "i32"), \
past: Shape([m])) -> Tensor((1, 4, 64), "f32"):
    # requires m + 1 <= 512
    attention: Tensor((1, 4, 64), "f32") = attention(q, k, v, positions, sequences, shape(m + 1), {ATTRIBUTES})
    silu: Tensor((1, 4, 64), "f32") = silu(attention)
    return silu
"""
AFTER = f"""\
def f(q: Tensor((1, 4, 64), "f32"), {PARAMS}positions: Tensor((1,), "i32"), sequences: Tensor((1,), "i32"), \
past: Shape([m])) -> Tensor((1, 4, 64), "f32"):
    # requires m + 1 <= 512
    attention_partial: Tuple[Tensor((m//256 + 1, 4), "f32"), Tensor((m//256 + 1, 4, 64), "f32")] = \
call_dps_library('attention_partial', q, k, v, positions, sequences, {PART_ATTRIBUTES}, symbols=(m))
    sums: Tensor((m//256 + 1, 4), "f32") = attention_partial[0]
    means: Tensor((m//256 + 1, 4, 64), "f32") = attention_partial[1]
    attention: Tensor((1, 4, 64), "f32") = call_dps_library('attention_combine', sums, means, symbols=(m))
    silu: Tensor((1, 4, 64), "f32") = silu(attention)
    return silu
"""


def test_before_and_after() -> None:
    """One query: the parts of the split, a workspace, are an ordinary tensor of the graph."""
    module = attention(1)
    assert print_function(module.functions["f"]) == BEFORE
    after = dispatched(module, LIBRARY)
    assert print_function(after.functions["f"]) == AFTER
    assert list(after.programs) == ["attention_partial", "attention_combine"]


def test_many_queries_take_the_other_entry() -> None:
    assert called(dispatched(attention(N), LIBRARY)) == ["attention_prefill", "silu"]
    assert called(dispatched(attention(3), LIBRARY)) == ["attention_prefill", "silu"]


def test_without_a_table_nothing_changes() -> None:
    module = attention(N)
    assert dispatched(module, ()) == module
    assert called(legalize(module)) == []


def test_the_first_entry_that_fits_wins() -> None:
    module = activations((N, 8))
    first, second = Entry(ops.silu, (SILU,)), Entry(ops.silu, (Routine("other", SILU.reference),))
    assert called(dispatched(module, (first, second))) == ["my_silu", "relu"]
    assert called(dispatched(module, (second, first))) == ["other", "relu"]
    mine = Entry(ops.attention, (Routine("mine", LIBRARY[1].routines[0].reference),))
    assert called(dispatched(attention(1), (mine, *LIBRARY))) == ["mine", "silu"]


def test_a_condition_sees_shapes_attributes_and_the_target() -> None:
    def is_wide(arguments: Sequence[Any], attributes: Any, target: Any) -> bool:
        assert attributes == {}
        (x,) = arguments
        return target is WEBGPU and x.shape[1] == 8

    module = activations((N, 8), (N, 4))
    after = dispatched(module, (Entry(ops.silu, (SILU,), is_wide),))
    assert called(after) == ["my_silu", "relu", "silu", "relu"]


def test_only_the_operator_counts_not_its_name() -> None:
    namesake = replace(ops.silu, deduce=ops.relu.deduce)
    assert called(dispatched(activations((N, 8)), (Entry(namesake, (SILU,)),))) == ["silu", "relu"]


def test_a_rewrite_may_bind_routines_and_operators() -> None:
    def twice(builder: LibraryBuilder, args: tuple[Atom, ...], attributes: Any) -> Atom:
        return builder.op(ops.negate, builder.library(RELU, builder.library(RELU, *args)))

    after = dispatched(activations((2, 8)), (Entry(ops.silu, (RELU,), rewrite=twice),))
    assert called(after) == ["my_relu", "my_relu", "negate", "relu"]
    assert len(after.programs) == 1
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    assert (Interpreter(after).call("f", x) == np.maximum(-np.maximum(x, 0), 0)).all()


def test_a_rewrite_may_give_an_argument_back() -> None:
    after = dispatched(activations((2, 8)), (Entry(ops.silu, (), rewrite=lambda builder, args, attributes: args[0]),))
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    assert (Interpreter(after).call("f", x) == np.maximum(x, 0)).all()


def test_arms_of_a_choice_are_dispatched_too() -> None:
    b = FunctionBuilder("f")
    x, flag = b.param("x", f32(4)), b.param("flag", Tensor((), "i32"))
    then, orelse = b.arm(), b.arm()
    chosen = b.if_else(flag, then.block(then.op(ops.relu, x)), orelse.block(orelse.op(ops.silu, x)))
    after = dispatched(module_of(b.finish(chosen)), (Entry(ops.relu, (RELU,)), Entry(ops.silu, (SILU,))))
    assert called(after) == ["my_relu", "my_silu"]


def test_numpy_may_stand_in_for_a_routine() -> None:
    after = dispatched(activations((2, 8)), (Entry(ops.silu, (SILU,)),))
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    result = Interpreter(after, routines={"my_silu": lambda given: given + 1}).call("f", x)
    assert (result == np.maximum(x + 1, 0)).all()


def test_a_routine_without_a_kernel_is_refused() -> None:
    with pytest.raises(WebrelaxError, match="no WGSL routine 'my_silu'"):
        compile(activations((2, 8)), library=(Entry(ops.silu, (SILU,)),))


def double(builder: LibraryBuilder, args: tuple[Atom, ...], _: object) -> Atom:
    return builder.op(ops.add, *(builder.library(SILU, args[0]) for _ in range(2)))


def test_an_operand_is_looked_through_and_dropped() -> None:
    """silu(relu(x)) becomes what the entry makes of x; relu alone, and silu of something else, stay."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    through = b.op(ops.silu, b.op(ops.relu, x))
    other = b.op(ops.silu, b.op(ops.add, x, through))
    module = module_of(b.finish(through, other))
    entry = Entry(ops.silu, (SILU,), rewrite=lambda b, args, _: b.library(SILU, args[0]), operands=((0, ops.relu),))
    assert called(dispatched(module, [entry])) == ["my_silu", "add", "silu"]


def test_an_operand_that_something_else_reads_stays() -> None:
    b = FunctionBuilder("f")
    rectified = b.op(ops.relu, b.param("x", f32(N, 4)))
    module = module_of(b.finish(b.op(ops.silu, rectified), rectified))
    entry = Entry(ops.silu, (SILU,), operands=((0, ops.relu),))
    assert called(dispatched(module, [entry])) == ["relu", "my_silu"]


def test_equal_calls_of_routines_are_made_once() -> None:
    module = activations((N, 4))
    after = dispatched(module, [Entry(ops.silu, (SILU,), rewrite=double)])
    assert called(after) == ["my_silu", "add", "relu"]
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    actual, before = (Interpreter(legalize(m)).call("f", x) for m in (after, module))
    np.testing.assert_allclose(actual, 2 * before, rtol=1e-6)
