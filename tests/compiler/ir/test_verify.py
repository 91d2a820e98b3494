"""The well-formedness check: a good module passes, and each way to break it is refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Binding,
    Block,
    CallFunction,
    CallTIR,
    Constant,
    Function,
    FunctionBuilder,
    FunctionRef,
    GetItem,
    IllFormed,
    MatchCast,
    Module,
    ModuleBuilder,
    Name,
    Object,
    Shape,
    ShapeValue,
    Tensor,
    print_module,
    reference,
    verify,
)
from webrelax.compiler.ir import Callable as Function_
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.tir import Axis, Buffer, Load, Program, ProgramBuilder, Stage

from ..ops.cases import f32, i32, module_of

N, M = Var("n", 1, 64), Var("m", 0, 8)
CACHE = f32(1, 32, 2, 4)


def step() -> Function:
    """Appends to a cache and reads it."""
    b = FunctionBuilder("step")
    cache, new = b.param("cache", CACHE), b.param("new", f32(N, 2, 4))
    positions, sequences = b.param("positions", i32(N)), b.param("sequences", i32(N))
    after = b.op(ops.kv_append, cache, new, positions, sequences, hint="after")
    total = b.op(ops.row_sum, after, hint="total")
    return b.finish(total, after, consumed=[(0, 1)])


def main() -> Function:
    """Calls `step` in an arm, casts and adds."""
    b = FunctionBuilder("main")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8))
    flag, loose = b.param("flag", i32()), b.param("loose", Tensor(dtype="f32", ndim=2))
    cast = b.match_cast(loose, f32(M, 8))
    joined = b.op(ops.concat, x, cast, axis=0, hint="joined")
    y = b.op(ops.add, joined, w, hint="y")
    then, orelse = b.arm(), b.arm()
    doubled = then.block(then.op(ops.add, y, y, hint="doubled"))
    chosen = b.if_else(flag, doubled, orelse.block(orelse.op(ops.relu, y, hint="clipped")))
    return replace(b.finish(chosen), requires=((N, as_expr(64)),))


def good() -> Module:
    return legalize(module_of(step(), main()))


def test_a_good_module() -> None:
    for module in (module_of(step(), main()), good(), Module({})):
        verify(module)


def change_function(name: str, change: Callable[[Function], Function]) -> Module:
    module = good()
    return replace(module, functions={**module.functions, name: change(module.functions[name])})


def change_bindings(name: str, change: Callable[[list[Binding]], list[Binding]]) -> Module:
    def changed(function: Function) -> Function:
        return replace(function, body=replace(function.body, bindings=tuple(change(list(function.body.bindings)))))

    return change_function(name, changed)


def change_value(name: str, at: int, **fields: Any) -> Module:
    def changed(bindings: list[Binding]) -> list[Binding]:
        value: Any = bindings[at].value
        bindings[at] = replace(bindings[at], value=replace(value, **fields))
        return bindings

    return change_bindings(name, changed)


def change_program(name: str, **fields: Any) -> Module:
    module = good()
    return replace(module, programs={**module.programs, name: replace(module.programs[name], **fields)})


def refused(module: Module, message: str) -> None:
    with pytest.raises(IllFormed) as caught:
        verify(module)
    assert message in str(caught.value), str(caught.value)


def test_names() -> None:
    refused(change_bindings("main", lambda b: [*b, b[-1]]), "is bound twice")
    refused(change_bindings("main", lambda b: [b[1], b[0], *b[2:]]), "uses cast before it is bound")
    refused(change_bindings("main", lambda b: b[:-1]), "main: result: uses chosen before it is bound")
    refused(change_function("main", lambda f: replace(f, name="other")), "function other is listed as main")
    param = good().functions["main"].params[0]
    refused(change_function("main", lambda f: replace(f, params=(param, *f.params))), "main: x: is bound twice")
    other = Name("x", f32(N, 9))
    refused(change_value("main", 1, args=(other, Name("cast", f32(M, 8)))), 'uses x as Tensor((n, 9), "f32"), it is')


def test_names_of_one_arm_are_not_known_in_the_other_or_behind() -> None:
    def arms(use_in_else: bool, use_behind: bool) -> Module:
        b = FunctionBuilder("f")
        flag, x = b.param("flag", i32()), b.param("x", f32(4))
        then, orelse = b.arm(), b.arm()
        inner = then.op(ops.relu, x, hint="inner")
        other = orelse.op(ops.negate, inner if use_in_else else x)
        chosen = b.if_else(flag, then.block(inner), orelse.block(other))
        return module_of(b.finish(b.op(ops.add, chosen, inner if use_behind else x)))

    verify(arms(False, False))
    refused(arms(True, False), "f: negate: uses inner before it is bound")
    refused(arms(False, True), "f: add: uses inner before it is bound")


def test_symbolic_variables() -> None:
    unknown, wide = Var("u"), Var("n", 0, 64)
    message = "uses u, which nothing binds before"

    def one(binding: Binding, *params: Name) -> Module:
        return module_of(Function("f", params, Block((binding,), binding.name), Object()))

    refused(change_function("main", lambda f: replace(f, requires=((unknown, N),))), f"main: requires: {message}")
    x, y, z = Name("x", f32(N)), Name("y", f32(wide)), Name("z", f32(unknown * 2))
    refused(one(Binding(Name("v", Object()), ShapeValue(())), z), f"f: z: {message}")
    refused(one(Binding(Name("v", Object()), ShapeValue(())), x, y), "f: n: is used with two different bounds")
    refused(one(Binding(Name("s", Shape((unknown,))), ShapeValue((unknown,)))), f"f: s: {message}")
    refused(one(Binding(Name("c", f32(wide)), MatchCast(x, f32(wide))), x), "f: n: is used with two different bounds")
    refused(one(Binding(Name("c", Object()), MatchCast(x, f32(N + unknown))), x), f"f: c: {message}")
    refused(change_value("main", 2, sym_args=(M, unknown)), f"main: y: {message}")


def test_variables_of_an_arm_are_not_known_behind() -> None:
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32()), b.param("x", Tensor(dtype="f32", ndim=1))
    then, orelse = b.arm(), b.arm()
    chosen = b.if_else(flag, then.block(then.match_cast(x, f32(M))), orelse.block(orelse.match_cast(x, f32(M))))
    assert chosen.annotation == Tensor(dtype="f32", ndim=1)
    verify(module_of(b.finish(chosen)))
    function = b.finish(chosen)
    exact = replace(function.body.bindings[0], name=Name("chosen", f32(M)))
    refused(
        module_of(replace(function, body=Block((exact,), exact.name))), "f: chosen: uses m, which nothing binds before"
    )


def test_annotations() -> None:
    refused(
        change_bindings("main", lambda b: [replace(b[0], name=Name("cast", f32(M, 9))), *b[1:]]),
        'main: cast: is annotated Tensor((m, 9), "f32"), but is Tensor((m, 8), "f32")',
    )
    refused(change_function("main", lambda f: replace(f, result=f32(N, 9))), "main: result: Tensor(")
    coarse = Binding(Name("i", Object()), GetItem(Name("x", f32(N, 8)), 0))
    refused(change_bindings("main", lambda b: [coarse, *b]), "main: i: x is no tuple, it is Tensor")
    verify(change_function("main", lambda f: replace(f, result=Object())))


def test_functions_that_are_named() -> None:
    def calling(callee: FunctionRef) -> Module:
        value = CallFunction(callee, (Name("x", f32(N)),))
        result = Binding(Name("y", Object()), value)
        caller = Function("f", (Name("x", f32(N)),), Block((result,), result.name), Object())
        b = FunctionBuilder("g")
        return module_of(caller, b.finish(b.param("a", f32(M))))

    verify(calling(FunctionRef("g", Function_((f32(M),), f32(M)))))
    refused(calling(FunctionRef("h", Function_((f32(M),), f32(M)))), "f: y: names a function h that does not exist")
    refused(calling(FunctionRef("g", Function_((f32(M),), f32(1)))), "f: y: uses g as Callable(")
    refused(calling(FunctionRef("g", Function_((i32(M),), f32(M)))), "f: y: uses g as Callable(")


def test_calls_of_programs() -> None:
    call = good().functions["main"].body.bindings[2].value
    assert isinstance(call, CallTIR)
    joined, w = call.args
    refused(change_value("main", 2, program="nothing"), "main: y: calls a program nothing that does not exist")
    refused(change_value("main", 2, args=(joined,)), "gives add the wrong number of arguments")
    refused(change_value("main", 2, outputs=()), "gives add the wrong number of arguments")
    refused(change_value("main", 2, sym_args=()), "gives add the wrong number of arguments")
    refused(change_value("main", 2, args=(w, joined)), "add has x: f32[m + n, 8]")
    refused(change_value("main", 2, args=(joined, Constant("c", i32(8)))), "add has y: f32[8]")
    refused(change_value("main", 2, args=(joined, Constant("c", f32(9)))), "add has y: f32[8]")
    refused(change_value("main", 2, args=(joined, ShapeValue((as_expr(8),)))), "not Shape([8])")
    refused(change_value("main", 2, outputs=(f32(N, 8),)), "add has z: f32[m + n, 8]")
    refused(change_value("main", 2, outputs=(i32(N + M, 8),)), "add has z: f32[m + n, 8]")
    refused(change_value("main", 2, sym_args=(N, N)), "add has x: f32[m + n, 8], here Tensor((n*2, 8)")
    # Too little known of an argument is legal, and so is promising less of a result.
    verify(change_value("main", 2, args=(joined, Constant("c", Tensor(dtype="f32", ndim=1)))))


LOOP = Var("i0")
WRONG_SHAPE, LOOP_SHAPE = Buffer("x", (M,), "f32"), Buffer("y", (LOOP,), "f32")


def stage(**fields: Any) -> Stage:
    plain = Stage(("y",), (Axis(LOOP, N),), (LOOP,), (Load("x", (LOOP,), "f32"),))
    return replace(plain, **fields)


MIRROR = stage(indices=(N - 1 - LOOP,))


def program(**fields: Any) -> Program:
    plain = Program("p", (Buffer("x", (N,), "f32"),), (Buffer("y", (N,), "f32"),), (stage(),), symbols=(N,))
    return replace(plain, **fields)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (program(symbols=()), "p does not declare n"),
        (program(outputs=(Buffer("x", (N,), "f32"),)), "p: a buffer name repeats"),
        (program(stages=(stage(values=(Load("z", (LOOP,), "f32"),)),)), "p reads z before it is written"),
        (program(stages=(stage(values=(Load("y", (LOOP,), "f32"),)),)), "p reads y before it is written"),
        (program(stages=(stage(values=(Load("x", (), "f32"),)),)), "p: x[] has the wrong rank"),
        (program(stages=(stage(outputs=("x",)),)), "p writes x, which is no output or local"),
        (program(stages=(stage(outputs=("z",)),)), "p writes z, which is no output or local"),
        (program(stages=(stage(indices=(LOOP, LOOP)),)), "p stores to y with the wrong rank"),
        (program(stages=()), "p never writes y"),
        (program(in_place=(("y", "z"),)), "p: y cannot overwrite z"),
        (program(in_place=(("y", "x"),), stages=(MIRROR,)), "p reads x[i0] while overwriting x"),
        (program(in_place=(("y", "x"),), inputs=(WRONG_SHAPE,), symbols=(M, N)), "p: y cannot overwrite x"),
        (program(outputs=(LOOP_SHAPE,), symbols=(N, LOOP)), "p: i0 names both a loop and a shape variable"),
    ],
)
def test_programs(changed: Program, message: str) -> None:
    verify(Module({}, {"p": program()}))
    verify(Module({}, {"p": program(in_place=(("y", "x"),))}))
    refused(Module({}, {"p": changed}), message)


def test_a_program_listed_under_another_name() -> None:
    refused(Module({}, {"q": program()}), "program p is listed as q")


class State:
    """A function with one cache, in which mistakes with overwriting are made."""

    def __init__(self) -> None:
        self.b = FunctionBuilder("f")
        self.cache, self.new, self.ids = (
            self.b.param("cache", CACHE),
            self.b.param("new", f32(3, 2, 4)),
            self.b.param("ids", i32(3)),
        )

    def append(self, cache: Any, **given: Any) -> Name:
        return self.b.op(ops.kv_append, cache, given.get("new", self.new), self.ids, self.ids, hint="after")

    def refused(self, message: str, *results: Any, consumed: tuple[tuple[int, int], ...] = ((0, 0),)) -> None:
        plain = module_of(self.b.finish(*results, consumed=consumed))
        refused(plain, message)
        refused(legalize(plain), message)


def test_a_consumed_value_is_not_used_again() -> None:
    s = State()
    after = s.append(s.cache)
    s.refused("f: row_sum: uses cache, which was overwritten", after, s.b.op(ops.row_sum, s.cache))
    s = State()
    after = s.append(s.cache)
    s.refused("f: after_1: uses cache, which was overwritten", s.append(s.cache), after)
    s = State()
    s.refused("uses cache, which was overwritten", s.append(s.cache), s.cache)
    s = State()
    first = s.append(s.cache)
    second = s.append(first)
    verify(module_of(s.b.finish(second, s.ids, consumed=[(0, 0)])))
    s.refused("uses after, which was overwritten", second, first)


def test_other_names_of_consumed_memory_are_not_used_either() -> None:
    s = State()
    pair = s.b.make_tuple(s.cache, s.new)
    again, new = s.b.get_item(pair, 0, hint="again"), s.b.get_item(pair, 1, hint="same_new")
    cast = s.b.match_cast(again, CACHE)
    after = s.append(s.cache, new=new)
    verify(module_of(s.b.finish(after, new, consumed=[(0, 0)])))
    for name in (again, cast, pair):
        function = replace(s.b.finish(after, consumed=[(0, 0)]), result=Object())
        body = replace(function.body, result=name)
        refused(module_of(replace(function, body=body)), f"f: result: uses {name}, which was overwritten")


def test_a_call_does_not_read_what_it_overwrites() -> None:
    s = State()
    same = s.b.match_cast(s.cache, CACHE)
    plain = module_of(s.b.finish(s.append(same, new=s.new), consumed=[(0, 0)]))
    verify(plain)
    b = ProgramBuilder("shift")
    target, source = b.input("t", (4,), "f32"), b.input("x", (4,), "f32")
    mb = ModuleBuilder()
    shift = b.finish(b.scatter("y", target, (4,), lambda i: (i,), lambda i: source[3 - i]))
    graph = FunctionBuilder("g")
    x = graph.param("x", f32(4))
    y = graph.emit(mb.call_tir(shift, [x, graph.match_cast(x, f32(4))]))
    mb.add_function(graph.finish(y, consumed=[(0, 0)]))
    refused(mb.finish(), "g: v: reads cast while overwriting it")


def test_a_weight_is_not_overwritten() -> None:
    s = State()
    s.refused("f: after: overwrites @cache, which is not a value", s.append(Constant("cache", CACHE)), consumed=())


def test_a_signature_says_what_is_consumed() -> None:
    s = State()
    s.refused("f: cache: is overwritten, but not declared as consumed", s.append(s.cache), consumed=())
    s = State()
    s.refused("f: cache: is declared as consumed but nothing overwrites it", s.new)
    s = State()
    after = s.append(s.cache)
    s.refused("f: cache: is consumed, but result 0 does not carry it on", s.new, after)
    s.refused("f: cache: is consumed, but result 2 does not carry it on", s.new, after, consumed=((0, 2),))


def test_each_arm_may_overwrite_once() -> None:
    def arms(after_the_if: bool) -> Module:
        s = State()
        flag = s.b.param("flag", i32())
        then, orelse = s.b.arm(), s.b.arm()
        one, other = (arm.block(arm.op(ops.kv_append, s.cache, s.new, s.ids, s.ids)) for arm in (then, orelse))
        chosen = s.b.if_else(flag, one, other)
        results = (chosen, s.cache) if after_the_if else (chosen,)
        return module_of(s.b.finish(*results, consumed=[(0, 0)]))

    verify(arms(False))
    verify(legalize(arms(False)))
    refused(arms(True), "uses cache, which was overwritten")


def caller(*, use_again: bool = False, pass_on: bool = False) -> Module:
    b = FunctionBuilder("outer")
    args = [b.param(p.name, p.annotation) for p in step().params]
    if pass_on:
        pair = b.make_tuple(reference(step()), args[0])
        return module_of(step(), b.finish(pair))
    result = b.call(reference(step()), *args)
    after = b.get_item(result, 1, hint="after")
    again = args[0] if use_again else args[1]
    return module_of(step(), b.finish(b.get_item(result, 0), after, again, consumed=[(0, 1)]))


def test_calls_of_functions_consume_too() -> None:
    verify(caller())
    verify(legalize(caller()))
    refused(caller(use_again=True), "outer: results: uses cache, which was overwritten")
    refused(caller(pass_on=True), "hands on step, which overwrites its arguments")


def test_a_called_function_may_return_what_it_was_given() -> None:
    """The result of an identity function is another name of its argument."""
    b = FunctionBuilder("identity")
    identity = b.finish(b.param("a", CACHE))
    b = FunctionBuilder("sum")
    total = b.finish(b.op(ops.row_sum, b.param("a", CACHE)))
    for callee, message in ((identity, "uses result, which was overwritten"), (total, None)):
        s = State()
        result = s.b.call(reference(callee), s.cache)
        module = module_of(callee, s.b.finish(s.append(s.cache), result, consumed=[(0, 0)]))
        if message:
            refused(module, message)
        else:
            verify(module)


def test_messages_name_function_and_binding() -> None:
    module = change_value("main", 2, program="nothing")
    with pytest.raises(IllFormed, match=r"^main: y: "):
        verify(module)
    assert "nothing" in print_module(module)  # an ill-formed module can be looked at
