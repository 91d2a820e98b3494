"""Symbolic shapes: cases S1 (fig. 3), S2 (fig. 7) and S3 (fig. 8) of Relax."""

from __future__ import annotations

from typing import Any

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Annotation,
    Atom,
    CallFunction,
    Function,
    FunctionBuilder,
    FunctionRef,
    Name,
    Operator,
    Shape,
    ShapeValue,
    Tensor,
    Tuple,
    all_bindings,
    reference,
)
from webrelax.compiler.passes import inline_calls, legalize
from webrelax.compiler.symbolic import Var, as_expr, prove_equal
from webrelax.compiler.tir import Cast, Index, Program, ProgramBuilder

from ..fusion.lowered import stages
from ..ops.cases import f32, module_of
from .figure import LENGTHS, check_text, check_values, normal

N, M, K = Var("n", 1, 64), Var("m", 1, 64), Var("k", 1, 64)


# S1: what follows from a shape stays known; where it cannot be known, match_cast says it.


def test_s1_dimensions_stay_expressions() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 2, 2))
    lv0 = b.op(ops.reshape, x, ShapeValue((N, as_expr(4))), hint="lv0")
    lv1 = b.op(ops.flatten, lv0, hint="lv1")
    lv2 = b.op(ops.unique, lv1, hint="lv2")
    lv3 = b.match_cast(lv2, f32(M), hint="lv3")
    lv4 = b.op(ops.exp_of, lv3, hint="lv4")
    annotations = [v.annotation for v in (lv0, lv1, lv2, lv3, lv4)]
    assert annotations == [f32(N, 4), f32(N * 4), Tensor(dtype="f32", ndim=1), f32(M), f32(M)]
    sizes = [ops.product(a.shape) for a in annotations[:2] if isinstance(a, Tensor) and a.shape is not None]
    assert prove_equal(*sizes)
    written = module_of(b.finish(lv4))
    programs = {"as written": written, "after legalize": legalize(written)}
    check_text("s1_symbolic_shapes", programs)
    for n in LENGTHS:
        # From a few numbers, so that some are there more than once.
        values = np.random.default_rng(n).integers(0, 4, (n, 2, 2)).astype(np.float32)
        check_values(programs, "f", [values], np.exp(np.unique(values)))


# S2: a call's result follows from the callee's signature alone.


def _lower_iota(arguments: tuple[Annotation, ...], _: Any) -> Program:
    (shape,) = arguments
    assert isinstance(shape, Shape)
    assert shape.dims is not None
    b = ProgramBuilder("iota")
    return b.finish(b.compute("y", shape.dims, lambda i: Cast("f32", Index(i))))


def _deduce_iota(arguments: tuple[Annotation, ...], _: Any) -> Annotation:
    (shape,) = arguments
    assert isinstance(shape, Shape)
    return Tensor(shape.dims, "f32", shape.ndim)


iota = Operator("iota", _deduce_iota, _lower_iota)


def subfn() -> Function:
    """subfn(s: Shape([n, m])) -> Tensor((n*m,), "f32"): counts up from 0."""
    b = FunctionBuilder("subfn")
    b.param("s", Shape((N, M)))
    return b.finish(b.op(iota, ShapeValue((N * M,))))


def four_calls(name: str, through_a_value: bool) -> Function:
    """Calls subfn, or the function that its own first parameter is, with what is known of a shape in four ways."""
    b = FunctionBuilder(name)
    signature = reference(subfn()).annotation
    callee: FunctionRef | Name = b.param("callee", signature) if through_a_value else reference(subfn())
    b.param("x", f32(K, 4))
    y = b.param("y", Shape(ndim=2))
    four = as_expr(4)
    given: list[Atom] = [ShapeValue((K, four)), ShapeValue((as_expr(3), four)), ShapeValue((K + 1, four)), y]
    return b.finish(*(b.call(callee, shape, hint=f"lv{at}") for at, shape in enumerate(given)))


def test_s2_calls_are_deduced_from_the_signature() -> None:
    direct, indirect = four_calls("direct", False), four_calls("indirect", True)
    expected = [f32(K * 4), f32(12), f32((K + 1) * 4), Tensor(dtype="f32", ndim=1)]
    for function in (direct, indirect):
        calls = [b.name.annotation for b in function.body.bindings if isinstance(b.value, CallFunction)]
        assert calls == expected
    b = FunctionBuilder("main")
    x, y = b.param("x", f32(K, 4)), b.param("y", Shape(ndim=2))
    main = b.finish(b.call(reference(indirect), reference(subfn()), x, y))
    assert main.result == Tuple(tuple(expected))

    written = module_of(subfn(), direct, indirect, main)
    inlined = inline_calls(written)
    left = [b.value for name in ("direct", "main") for b in all_bindings(inlined.functions[name].body)]
    assert not any(isinstance(value, CallFunction) for value in left)
    programs = {"as written": written, "after inline_calls": inlined, "after legalize": legalize(inlined)}
    check_text("s2_function_calls", {title: programs[title] for title in ("as written", "after inline_calls")})
    for k in LENGTHS:
        for rows, columns in ((1, 1), (5, 3)):
            values = tuple(np.arange(size) for size in (k * 4, 12, (k + 1) * 4, rows * columns))
            check_values({"as written": written}, "indirect", ["subfn", normal(k, 4), (rows, columns)], values)
            for name in ("direct", "main"):
                check_values(programs, name, [normal(k, 4), (rows, columns)], values)


# S3: what a fused function cannot take from its arguments, an extra parameter carries.


def test_s3_fusion_hands_the_variable_on() -> None:
    b = FunctionBuilder("f")
    b.param("s", Shape((N,)))
    x, y = b.param("x", f32(N * 2)), b.param("y", f32(N * 2))
    function = b.finish(b.op(ops.relu, b.op(ops.add, x, y, hint="lv0"), hint="lv1"))
    written, _, grouped, _, fused = stages(module_of(function))
    programs = {"as written": written, "after legalize and fuse_ops": grouped, "after fuse_tir": fused}
    check_text("s3_fused_symbolic_shape", programs)
    # No tensor's dimension is n itself, so that its two tensors cannot tell the group what n is.
    group = grouped.functions["fused_add_relu"]
    assert [p.annotation for p in group.params] == [f32(N * 2), f32(N * 2), Shape((N,))]
    assert group.result == f32(N * 2)
    (call,) = grouped.functions["f"].body.bindings
    assert isinstance(call.value, CallFunction)
    assert call.value.args[2] == ShapeValue((N,))
    for n in LENGTHS:
        a, c = normal(2 * n), normal(2 * n, seed=1)
        check_values(programs, "f", [(n,), a, c], np.maximum(a + c, 0))
