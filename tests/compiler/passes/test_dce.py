"""eliminate_dead_code: what nothing uses goes, checks and what is reachable stay."""

from __future__ import annotations

from dataclasses import replace

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Block,
    Function,
    FunctionBuilder,
    Module,
    Object,
    Tensor,
    all_bindings,
    reference,
    verify,
)
from webrelax.compiler.passes import eliminate_dead_code, legalize
from webrelax.compiler.symbolic import Var

from ..ops.cases import f32, i32, module_of

M = Var("m")


def names(module: Module, function: str = "f") -> list[str]:
    return [binding.name.name for binding in all_bindings(module.functions[function].body)]


def test_unused_bindings_and_programs_go() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    dead = b.op(ops.exp_of, b.op(ops.negate, x))
    b.make_tuple(dead, x)
    alive = b.op(ops.relu, x)
    module = eliminate_dead_code(legalize(module_of(b.finish(alive))))
    verify(module)
    assert names(module) == ["relu"]
    assert list(module.programs) == ["relu"]


def test_a_cast_stays_with_what_it_needs() -> None:
    b = FunctionBuilder("f")
    x, y = b.param("x", f32(4)), b.param("y", Tensor(dtype="f32", ndim=1))
    grown = b.op(ops.concat, x, x, axis=0)
    b.match_cast(grown, f32(8))
    b.match_cast(y, f32(M))
    module = eliminate_dead_code(module_of(b.finish(x)))
    verify(module)
    assert names(module) == ["concat", "cast", "cast_1"]


def test_arms_are_swept_and_their_uses_count() -> None:
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32()), b.param("x", f32(4))
    used, unused = b.op(ops.negate, x, hint="used"), b.op(ops.negate, x, hint="unused")
    then, orelse, other, last = (b.arm() for _ in range(4))
    then.op(ops.exp_of, unused)
    chosen = b.if_else(flag, then.block(then.op(ops.relu, used)), orelse.block(x))
    b.if_else(flag, other.block(unused), last.block(last.op(ops.relu, unused)))
    module = eliminate_dead_code(module_of(b.finish(chosen)))
    verify(module)
    assert names(module) == ["used", "relu", "chosen"]


def leaf(name: str) -> Function:
    b = FunctionBuilder(name)
    return b.finish(b.op(ops.relu, b.param("x", f32(4))))


def test_functions_are_kept_by_reach_from_the_roots() -> None:
    called, passed, returned, inside, lost = (leaf(n) for n in ("called", "passed", "returned", "inside", "lost"))
    b = FunctionBuilder("f")
    x, flag = b.param("x", f32(4)), b.param("flag", i32())
    b.call(reference(lost), x)
    y = b.call(reference(called), x)
    pair = b.make_tuple(y, reference(passed))
    then = b.arm()
    chosen = b.if_else(flag, then.block(then.call(reference(inside), x)), b.arm().block(x))
    main = b.finish(pair, chosen)
    empty = Function("g", (), Block((), reference(returned)), Object())
    module = legalize(module_of(main, empty, called, passed, returned, inside, lost))
    assert list(eliminate_dead_code(module).functions) == list(module.functions)  # all are roots
    kept = eliminate_dead_code(module, ("f", "g"))
    verify(kept)
    assert set(kept.functions) == {"f", "g", "called", "passed", "returned", "inside"}
    assert set(eliminate_dead_code(module, ("g",)).functions) == {"g", "returned"}


def test_fused_functions_are_no_roots() -> None:
    group = replace(leaf("group"), fused=True)
    b = FunctionBuilder("f")
    x = b.param("x", f32(4))
    module = module_of(group, b.finish(x))
    assert list(eliminate_dead_code(module).functions) == ["f"]


def test_a_write_whose_result_nobody_reads_goes() -> None:
    b = FunctionBuilder("f")
    cache, new, ids = b.param("cache", f32(1, 9, 1, 4)), b.param("new", f32(2, 1, 4)), b.param("ids", i32(2))
    b.op(ops.kv_append, cache, new, ids, ids)
    function = replace(b.finish(new), consumed=())
    module = eliminate_dead_code(module_of(function))
    verify(module)
    assert names(module) == []
