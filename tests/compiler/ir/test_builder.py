"""Builders: names, annotations by deduction, programs kept once."""

from __future__ import annotations

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Call,
    CallTIR,
    Constant,
    FunctionBuilder,
    FunctionRef,
    If,
    ModuleBuilder,
    Name,
    Shape,
    ShapeValue,
    Tensor,
    all_bindings,
    atoms,
    bound_variables,
    map_atoms,
    reference,
    use_counts,
    verify,
)
from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import Program, ProgramBuilder

from ..ops.cases import f32, i32, module_of

N, M = Var("n"), Var("m")


def test_names_are_unique_and_readable() -> None:
    b = FunctionBuilder("f")
    x = b.param("add", f32(N))
    assert [b.op(ops.add, x, x).name for _ in range(3)] == ["add_1", "add_2", "add_3"]
    assert b.op(ops.add, x, x, hint="sum").name == "sum"
    assert b.param("add", f32(N)).name == "add_4"
    arm = b.arm()
    assert arm.op(ops.add, x, x).name == "add_5"
    assert b.op(ops.add, x, x).name == "add_6"


def test_bindings_are_annotated_by_deduction_and_refused_where_ill_typed() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    assert b.op(ops.linear, x, Constant("w", f32(3, 4))).annotation == f32(N, 3)
    assert b.make_tuple(x, ShapeValue((N,))).annotation is not None
    with pytest.raises(ValueError, match="linear: columns of x and weight"):
        b.op(ops.linear, x, Constant("w", f32(3, 5)))
    function = b.finish(x)
    assert [binding.name.name for binding in function.body.bindings] == ["linear", "pair"]
    verify(module_of(function))


def test_attributes_are_sorted() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    b.op(ops.rms_norm, x, Constant("w", f32(4)), eps=1e-5)
    value = b.finish(x).body.bindings[0].value
    assert isinstance(value, Call)
    assert value.attributes == (("eps", 1e-5),)


def program(name: str, amount: float) -> Program:
    b = ProgramBuilder(name)
    x = b.input("x", (N,), "f32")
    return b.finish(b.compute("y", (N,), lambda i: x[i] + amount))


def test_equal_programs_are_kept_once_under_the_first_name() -> None:
    builder = ModuleBuilder()
    assert builder.add_program(program("p", 1)) == "p"
    assert builder.add_program(program("q", 1)) == "p"
    assert builder.add_program(program("p", 2)) == "p_1"
    assert builder.add_program(program("p", 3)) == "p_2"
    module = builder.finish()
    assert list(module.programs) == ["p", "p_1", "p_2"]
    verify(module)
    again = ModuleBuilder(module)
    assert again.add_program(program("anything", 3)) == "p_2"
    assert again.finish() == module


def test_a_call_of_a_program_takes_its_own_shapes() -> None:
    builder, b = ModuleBuilder(), FunctionBuilder("f")
    x = b.param("x", f32(N))
    call = builder.call_tir(program("p", 1), [x])
    assert call == CallTIR("p", (x,), (f32(N),), (N,))
    y = b.emit(call)
    ref = builder.add_function(b.finish(y))
    assert ref == FunctionRef("f", reference(b.finish(y)).annotation)
    verify(builder.finish())


def test_walking_over_a_function() -> None:
    b = FunctionBuilder("f")
    x, flag = b.param("x", f32(N, M)), b.param("flag", i32())
    b.param("s", Shape((N * 2, Var("k"))))
    y = b.op(ops.relu, x, hint="y")
    then, orelse = b.arm(), b.arm()
    inner = then.op(ops.add, y, x, hint="inner")
    chosen = b.if_else(flag, then.block(inner), orelse.block(y))
    function = b.finish(chosen)
    assert [binding.name.name for binding in all_bindings(function.body)] == ["y", "inner", "chosen"]
    assert use_counts(function.body) == {"x": 2, "y": 2, "flag": 1, "inner": 1, "chosen": 1}
    assert bound_variables(function) == {N, M, Var("k")}

    value = function.body.bindings[1].value
    assert atoms(value) == (flag,)
    changed = map_atoms(value, lambda atom: Name(f"new_{atom}", atom.annotation))
    assert isinstance(changed, If)
    assert [str(a) for a in atoms(changed)] == ["new_flag"]
    assert [str(a) for a in atoms(changed.then.bindings[0].value)] == ["new_y", "new_x"]
    assert str(changed.orelse.result) == "new_y"


def test_several_results_become_a_tuple() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(N)), b.param("y", Tensor())
    function = b.finish(x, y)
    assert function.results == (f32(N), Tensor())
    b = FunctionBuilder("g")
    assert b.finish(b.param("x", f32(N))).results == (f32(N),)
