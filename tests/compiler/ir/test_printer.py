"""The printed form of a module, and that it does not depend on how the module came about."""

from __future__ import annotations

from dataclasses import replace

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    CallLibrary,
    Constant,
    FunctionBuilder,
    Module,
    ModuleBuilder,
    Object,
    Place,
    Shape,
    ShapeValue,
    Tensor,
    print_module,
    reference,
)
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.tir import ProgramBuilder

from ..ops.cases import f32, i32

N = Var("n", 1, 64)

GOLDEN = """\
def helper(s: Shape([k])) -> Shape([k]):
    return s

def main(x: Tensor((n, 4), "f32"), flag: Tensor((), "i32"), any: Object) -> Tuple[Tensor(ndim=2, dtype="f32"), Object]:
    # consumes x, result 0 carries it on
    # requires n <= 64
    # slot 0: n
    cast: Tensor((m,), "f32") = match_cast(any, Tensor((m,), "f32"))
    linear: Tensor((n, 3), "f32") = linear(x, @w)
    turned: Tensor((3, n), "f32") = transpose(linear, axes=(1, 0))
    v: Tensor((2, n), "f32") = call_tir(double, cast, symbols=(m, n + 1))
    library: Tensor((n,), "f32") = call_dps_library('gemm', x)
    result: Shape([n]) = helper(shape(n))
    pair: Tuple[Shape([n])] = (result,)
    item: Shape([n]) = pair[0]
    chosen: Tensor(ndim=2, dtype="f32") = if flag:
        relu: Tensor((n, 4), "f32") = relu(x)
        yield relu
    else:
        yield turned
    results: Tuple[Tensor(ndim=2, dtype="f32"), Object] = (chosen, any)
    return results

program double(x: f32[m], m, n) -> (y: f32[2, n]):
    for i0 < 2, i1 < n:
        y[i0, i1] = (x[0] + x[0])
"""


def everything() -> Module:
    module = ModuleBuilder()
    b = FunctionBuilder("helper")
    helper = b.finish(b.param("s", Shape((Var("k"),))))
    module.add_function(helper)
    m = Var("m")
    p = ProgramBuilder("double")
    source = p.input("x", (m,), "f32")
    program = p.finish(p.compute("y", (2, N), lambda i, j: source[0] + source[0]))
    b = FunctionBuilder("main")
    x, flag, any_ = b.param("x", f32(N, 4)), b.param("flag", i32()), b.param("any", Object())
    cast = b.match_cast(any_, f32(m))
    linear = b.op(ops.linear, x, Constant("w", f32(3, 4)))
    turned = b.op(ops.transpose, linear, hint="turned", axes=(1, 0))
    b.emit(replace(module.call_tir(program, [cast]), outputs=(f32(2, N),), sym_args=(m, N + 1)))
    b.emit(CallLibrary("gemm", (x,), (f32(N),)), "library")
    result = b.call(reference(helper), ShapeValue((N,)))
    b.get_item(b.make_tuple(result), 0)
    then = b.arm()
    chosen = b.if_else(flag, then.block(then.op(ops.relu, x)), b.arm().block(turned))
    function = b.finish(chosen, any_, consumed=[(0, 0)])
    module.add_function(replace(function, requires=((N, as_expr(64)),), slots=(N,)))
    return module.finish()


def test_golden() -> None:
    assert print_module(everything()) == GOLDEN


def test_equal_modules_print_equally() -> None:
    assert print_module(everything()) == print_module(everything())


def test_places_storages_and_fused_functions() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    y = b.op(ops.relu, x)
    function = b.finish(y)
    binding = replace(function.body.bindings[0], places=(Place("s0", 256, 16), Place("s1", 0, 4)))
    function = replace(function, fused=True, body=replace(function.body, bindings=(binding,)))
    text = print_module(Module({"f": function}, {}, {"s0": 512, "s1": 4}))
    assert text == (
        'fused def f(x: Tensor((4,), "f32")) -> Tensor((4,), "f32"):\n'
        '    relu: Tensor((4,), "f32") @ s0[256:272], s1[0:4] = relu(x)\n'
        "    return relu\n"
        "\n"
        "storage s0: 512 bytes\n"
        "storage s1: 4 bytes\n"
    )


def test_a_name_bound_to_a_name() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", Tensor())
    assert "    y: Tensor() = x\n" in print_module(Module({"f": b.finish(b.emit(x, "y"))}))
