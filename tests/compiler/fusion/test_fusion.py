"""What becomes one kernel and what does not, with the values before and after."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.fusion import fuse_ops, fuse_tir
from webrelax.compiler.ir import (
    CallTIR,
    Constant,
    FunctionBuilder,
    Module,
    ModuleBuilder,
    Operator,
    ShapeValue,
    Tensor,
    print_module,
    reference,
    verify,
)
from webrelax.compiler.passes import legalize
from webrelax.compiler.quantize import FORMATS, dequantize, packed_words
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import Program, ProgramBuilder, Unary, nodes

from ..ops.cases import Array, f32, i32, module_of
from .lowered import assert_same, fused, kernels, normal, stages

N, M = Var("n", 1, 64), Var("m", 1, 64)


def check(graph: FunctionBuilder, results: list[Any], expected: list[str], *args: Any, **weights: Array) -> Module:
    """Takes the function through fusion: these kernels are left, and every stage computes the same."""
    modules = stages(module_of(graph.finish(*results)))
    assert kernels(modules[-1]) == expected
    assert_same(modules, args, weights)
    return modules[-1]


@pytest.mark.parametrize("rows", [1, N])
def test_every_format_decodes_inside_matmul_and_gather(rows: Any) -> None:
    for name, format in FORMATS.items():
        b = FunctionBuilder("f")
        words = Constant("w", Tensor((packed_words(format, 5, 256),), "u32"))
        decoded = [b.op(dequantize, words, format=format, rows=5, columns=256) for _ in range(2)]
        y = b.op(ops.linear, b.param("x", f32(rows, 256)), decoded[0])
        z = b.op(ops.take, decoded[1], b.param("ids", i32(rows)))
        assert kernels(fused(module_of(b.finish(y, z)))) == ["fused_dequantize_linear", "fused_dequantize_take"], name


def test_elementwise_chains_become_one_kernel() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 6)), b.param("w", f32(6))
    y = b.op(ops.silu, b.op(ops.multiply, b.op(ops.negate, x), w))
    z = b.op(ops.transpose, b.op(ops.reshape, y, ShapeValue((N, as_expr(2), as_expr(3)))), axes=(2, 0, 1))
    check(b, [z], ["fused_negate_multiply_silu_reshape_transpose"], normal(5, 6), normal(6))


def test_epilogues_go_onto_a_matmul() -> None:
    b = FunctionBuilder("f")
    x, w, bias, gate = (
        b.param("x", f32(N, 8)),
        b.param("w", f32(6, 8)),
        b.param("bias", f32(6)),
        b.param("g", f32(N, 6)),
    )
    y = b.op(ops.add, b.op(ops.linear, x, w), bias)
    z = b.op(ops.multiply, b.op(ops.silu, y), gate)
    module = check(b, [z], ["fused_linear_add_silu_multiply"], normal(3, 8), normal(6, 8), normal(6), normal(3, 6))
    (program,) = module.programs.values()
    assert [stage.outputs for stage in program.stages] == [("linear",), ("multiply",)]


@pytest.mark.parametrize("anchor", ["softmax", "rms_norm", "row_sum"])
def test_epilogues_go_onto_reductions(anchor: str) -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8))
    y = b.op(ops.rms_norm, x, w, eps=1e-5) if anchor == "rms_norm" else b.op(ops.OPERATORS[anchor], x)
    check(b, [b.op(ops.tanh, b.op(ops.multiply, y, y))], [f"fused_{anchor}_multiply_tanh"], normal(3, 8), normal(8))


def test_a_row_vector_is_no_epilogue_of_its_own_reduction() -> None:
    """The sum of a row is needed by all of it: it must not be computed once an element."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    total = b.op(ops.reshape, b.op(ops.row_sum, x), ShapeValue((N, as_expr(1))))
    check(b, [b.op(ops.divide, x, total)], ["row_sum", "fused_reshape_divide"], normal(3, 8))


def test_all_behind_a_reduction_computes_from_the_very_element() -> None:
    b = FunctionBuilder("f")
    y = b.op(ops.tanh, b.op(ops.linear, b.param("x", f32(N, 8)), b.param("w", f32(6, 8))))
    z = b.op(ops.transpose, y, axes=(1, 0))
    check(b, [z], ["linear", "fused_tanh_transpose"], normal(3, 8), normal(6, 8))


def custom(name: str, columns: int, where: Any) -> Operator:
    """y[i, j] = x[where(i, j)] of a [4, 8] tensor."""

    def lower(_: Any, __: Any) -> Program:
        b = ProgramBuilder(name)
        x = b.input("x", (4, 8), "f32")
        return b.finish(b.compute("y", (4, columns), lambda i, j: x[where(i, j)]))

    return Operator(name, lambda arguments, _: f32(4, columns), lower)


@pytest.mark.parametrize(
    "operator",
    [
        custom("first_row", 8, lambda i, j: (0, j)),  # one row for all: each would compute it again
        custom("left", 4, lambda i, j: (i, j)),  # the rest would not be computed
        custom("mirror", 8, lambda i, j: (3 - i, j)),
    ],
)
def test_only_the_very_element_is_an_epilogue(operator: Operator) -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(4, 3)), b.param("w", f32(8, 3))
    check(b, [b.op(operator, b.op(ops.linear, x, w))], ["linear", operator.name], normal(4, 3), normal(8, 3))


def test_a_group_has_one_reduction() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    y = b.op(ops.linear, b.op(ops.relu, b.op(ops.linear, x, w)), w)
    check(b, [y], ["fused_linear_relu", "linear"], normal(3, 8), normal(8, 8))
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    y = b.op(ops.softmax, b.op(ops.linear, x, w))
    check(b, [y], ["linear", "softmax"], normal(3, 8), normal(8, 8))
    b = FunctionBuilder("f")
    x, w, y = b.param("x", f32(N, 8)), b.param("w", f32(8, 8)), b.param("y", f32(N, 6))
    z = b.op(ops.add, b.op(ops.linear, x, w), b.op(ops.linear, y, b.param("v", f32(8, 6))))
    check(b, [z], ["linear", "fused_linear_add"], normal(3, 8), normal(8, 8), normal(3, 6), normal(8, 6))


def test_but_twins_that_read_the_same_operand_share_a_kernel() -> None:
    """The gate and the up projection of a feed-forward network."""
    b = FunctionBuilder("f")
    x, gate, up = b.param("x", f32(N, 8)), b.param("gate", f32(6, 8)), b.param("up", f32(6, 8))
    y = b.op(ops.multiply, b.op(ops.silu, b.op(ops.linear, x, gate)), b.op(ops.linear, x, up))
    check(b, [y], ["fused_linear_silu_linear_multiply"], normal(3, 8), normal(6, 8), normal(6, 8, seed=1))


def test_costly_producers_are_not_computed_again() -> None:
    """A matmul reads each element once a column: only what is as cheap as reading goes into its loads."""
    for operator, expected in ((ops.exp_of, ["exp", "linear"]), (ops.negate, ["fused_negate_linear"])):
        b = FunctionBuilder("f")
        x, w = b.param("x", f32(N, 8)), b.param("w", f32(6, 8))
        check(b, [b.op(ops.linear, b.op(operator, x), w)], expected, normal(3, 8), normal(6, 8))
    # One column reads each element once.
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(1, 8))
    check(b, [b.op(ops.linear, b.op(ops.exp_of, x), w)], ["fused_exp_linear"], normal(3, 8), normal(1, 8))
    # Softmax reads its argument three times.
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    check(b, [b.op(ops.softmax, b.op(ops.tanh, x))], ["tanh", "softmax"], normal(3, 8))
    # Half of the rows, each read twice.
    twice = Operator("twice", lambda a, _: f32(N * 2, 8), lambda a, _: _repeat())
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    check(b, [b.op(twice, b.op(ops.exp_of, x))], ["exp", "twice"], normal(3, 8))


def _repeat() -> Any:
    b = ProgramBuilder("twice")
    x = b.input("x", (N, 8), "f32")
    return b.finish(b.compute("y", (N * 2, 8), lambda i, j: x[i // 2, j]))


def test_only_the_rows_that_are_read_are_computed() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    check(b, [b.op(ops.last_row, b.op(ops.silu, x))], ["fused_silu_last_row"], normal(3, 8))


def test_no_fused_program_evaluates_costly_functions_more_often() -> None:
    """The multiplication of an expression by inlining it twice is left to the kernel's own common subexpressions."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    y = b.op(ops.exp_of, x)
    module = check(b, [b.op(ops.multiply, y, y)], ["fused_exp_multiply"], normal(3, 8))
    (program,) = module.programs.values()
    found = {node for stage in program.stages for value in stage.values for node in nodes(value)}
    assert sum(isinstance(node, Unary) for node in found) == 1


def test_expressions_do_not_grow_without_bound() -> None:
    """GELU reads its argument five times: inlined into itself again and again it would be read 5^n times."""
    b = FunctionBuilder("f")
    y = b.param("x", f32(N, 8))
    for _ in range(12):
        y = b.op(ops.gelu_tanh, y)
    modules = stages(module_of(b.finish(y)))
    assert 1 < len(kernels(modules[-1])) < 12
    sizes = [sum(1 for s in p.stages for v in s.values for _ in nodes(v)) for p in modules[-1].programs.values()]
    assert max(sizes) < 1000
    assert_same(modules, [normal(3, 8)])


def test_a_value_with_uses_in_two_kernels_stays() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    y = b.op(ops.relu, x)
    both = [b.op(ops.linear, y, w), b.op(ops.softmax, y)]
    check(b, both, ["relu", "linear", "softmax"], normal(3, 8), normal(8, 8))


def test_a_diamond_is_one_kernel() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    y = b.op(ops.relu, x)
    z = b.op(ops.add, b.op(ops.negate, y), b.op(ops.tanh, y))
    check(b, [z], ["fused_relu_negate_tanh_add"], normal(3, 8))
    b = FunctionBuilder("f")
    y = b.op(ops.linear, b.param("x", f32(N, 8)), b.param("w", f32(8, 8)))
    z = b.op(ops.multiply, y, b.op(ops.sigmoid, y))
    check(b, [z], ["fused_linear_sigmoid_multiply"], normal(3, 8), normal(8, 8))


def test_results_stay() -> None:
    b = FunctionBuilder("f")
    y = b.op(ops.relu, b.param("x", f32(N, 8)))
    z = b.op(ops.negate, y)
    check(b, [y, z], ["relu", "negate"], normal(3, 8))
    b = FunctionBuilder("f")
    y = b.op(ops.relu, b.param("x", f32(N, 8)))
    again = b.match_cast(y, f32(N, 8))
    check(b, [b.op(ops.negate, y), again], ["relu", "negate"], normal(3, 8))


def test_indices_are_read_from_memory() -> None:
    """The table is computed where it is read; the ids stay out."""
    b = FunctionBuilder("f")
    table, ids = b.param("table", f32(9, 4)), b.param("ids", i32(N))
    y = b.op(ops.take, b.op(ops.negate, table), b.op(ops.relu, ids))
    check(b, [y], ["relu", "fused_negate_take"], normal(9, 4), np.array([-3, 8, 2], np.int32))


def test_a_kernel_binds_no_more_buffers_than_a_stage_may() -> None:
    b = FunctionBuilder("f")
    inputs = [b.param(f"x{at}", f32(N)) for at in range(12)]
    total = inputs[0]
    for each in inputs[1:]:
        total = b.op(ops.add, total, each)
    modules = stages(module_of(b.finish(total)))
    for program in modules[-1].programs.values():
        assert len(program.inputs) + len(program.outputs) <= WEBGPU.storage_buffers
    assert len(modules[-1].programs) == 2
    assert_same(modules, [normal(5, seed=at) for at in range(12)])
    tight = fuse_tir(fuse_ops(modules[1], replace(WEBGPU, storage_buffers=4)))
    verify(tight)
    assert all(len(p.inputs) + len(p.outputs) <= 4 for n, p in tight.programs.items() if n in kernels(tight))
    # Seven inputs and a result are as many as a stage may bind.
    for count, expected in ((7, 1), (8, 2)):
        b = FunctionBuilder("f")
        total = b.param("x0", f32(N))
        for at in range(1, count):
            total = b.op(ops.add, total, b.param(f"x{at}", f32(N)))
        assert len(kernels(fused(module_of(b.finish(total))))) == expected
    # The same buffer twice is one.
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    total = x
    for _ in range(12):
        total = b.op(ops.add, total, x)
    assert len(kernels(fused(module_of(b.finish(total))))) == 1


def test_equal_groups_share_a_program() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), [b.param(f"w{at}", f32(8, 8)) for at in range(3)]
    y = x
    for each in w:
        y = b.op(ops.tanh, b.op(ops.linear, y, each))
    check(b, [y], ["fused_linear_tanh"] * 3, normal(2, 8), *(normal(8, 8, seed=at) for at in range(3)))


def test_a_program_of_two_results_takes_producers_in() -> None:
    module = ModuleBuilder()
    p = ProgramBuilder("split")
    source = p.input("x", (N, 8), "f32")
    halves = [p.compute(f"y{at}", (N, 4), lambda i, j, at=at: source[i, j + 4 * at]) for at in range(2)]
    split = p.finish(*halves)
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    pair = b.emit(module.call_tir(legal(ops.exp_of, f32(N, 8)), [x]))
    pair = b.emit(module.call_tir(split, [pair]))
    y = b.op(ops.add, b.get_item(pair, 0), b.get_item(pair, 1))
    module.add_function(b.finish(y))
    modules = stages(module.finish())
    assert kernels(modules[-1]) == ["fused_exp_split", "add"]
    assert_same(modules, [normal(3, 8)])


def legal(operator: Operator, *annotations: Tensor) -> Any:
    assert operator.lower
    return operator.lower(annotations, {})


def test_arms_are_fused_on_their_own() -> None:
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32()), b.param("x", f32(N, 4))
    y = b.op(ops.relu, x)
    then, orelse = b.arm(), b.arm()
    chosen = b.if_else(
        flag,
        then.block(then.op(ops.tanh, then.op(ops.negate, y))),
        orelse.block(orelse.op(ops.softmax, orelse.op(ops.negate, y))),
    )
    modules = stages(module_of(b.finish(b.op(ops.negate, chosen))))
    assert kernels(modules[-1]) == ["relu", "fused_negate_tanh", "fused_negate_softmax", "negate"]
    for value in (0, 1):
        assert_same(modules, [np.array(value, np.int32), normal(3, 4)])


def test_locals_and_values_of_a_group_do_not_share_names() -> None:
    """The scores' own local is called `dot`, and so is the operator that follows."""
    dot = Operator("dot", lambda a, _: a[0], lambda a, _: replace(legal(ops.negate, *a), name="dot"))  # type: ignore[arg-type]
    b = FunctionBuilder("f")
    q, keys, ids = b.param("q", f32(2, 4, 3)), b.param("keys", f32(1, 5, 2, 3)), b.param("ids", i32(2))
    scores = b.op(ops.attention_scores, q, keys, ids, ids, ShapeValue((as_expr(5),)), scale=1.0)
    y = b.op(ops.tanh, b.op(dot, scores))
    args = normal(2, 4, 3), normal(1, 5, 2, 3), np.array([0, 0], np.int32)
    check(b, [y], ["fused_attention_scores_dot_tanh"], *args)


def test_other_variables_of_a_caller_reach_the_program() -> None:
    """A fused function's variables are its own: a call may give them any expression."""
    b = FunctionBuilder("group")
    x = b.param("x", f32(N, M))
    group = b.finish(b.op(ops.tanh, b.op(ops.negate, x)))
    module = legalize(module_of(group))
    group = replace(module.functions["group"], fused=True)
    k = Var("k")
    b = FunctionBuilder("f")
    y = b.call(reference(group), b.param("x", f32(k, k + 1)))
    module = Module({"group": group, "f": b.finish(y)}, module.programs)
    verify(module)
    after = fuse_tir(module)
    verify(after)
    call = after.functions["f"].body.bindings[0].value
    assert isinstance(call, CallTIR)
    assert call.sym_args == (k + 1, k)
    assert_same([module, after], [normal(3, 4)])


def canonical(text: str) -> list[str]:
    """Functions and programs with their identifiers numbered in order of appearance."""

    def numbered(part: str) -> str:
        numbers: dict[str, str] = {}
        return re.sub(r"@?[A-Za-z_]\w*", lambda m: numbers.setdefault(m[0], f"v{len(numbers)}"), part)

    return [numbered(part) for part in text.split("\n\n")]


def test_renaming_changes_nothing_but_names() -> None:
    def block(name: Any) -> Module:
        b = FunctionBuilder("f")
        x, weight, ids = b.param(name("x"), f32(N, 8)), b.param(name("w"), f32(8)), b.param(name("ids"), i32(N))
        h = b.op(ops.rms_norm, x, weight, hint=name("h"), eps=1e-5)
        words = Constant(name("q"), Tensor((packed_words(FORMATS["Q8_0"], 32, 32),), "u32"))
        decoded = b.op(dequantize, words, hint=name("d"), format=FORMATS["Q8_0"], rows=32, columns=32)
        wide = b.op(ops.concat, *(b.op(ops.concat, h, h, axis=1),) * 2, hint=name("wide"), axis=1)
        y = b.op(ops.silu, b.op(ops.linear, wide, decoded, hint=name("y")), hint=name("s"))
        z = b.op(ops.take, y, ids, hint=name("t"))
        return module_of(b.finish(b.op(ops.softmax, z), y))

    plain, renamed = block(lambda n: n), block(lambda n: f"some_{n}_thing")
    for one, other in zip(stages(plain), stages(renamed), strict=True):
        assert canonical(print_module(one)) == canonical(print_module(other))
    assert kernels(fused(plain)) == kernels(fused(renamed))
