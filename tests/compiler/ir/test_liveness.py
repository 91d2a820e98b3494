"""Which tensors are allocated, and how long each lives under all its names."""

from __future__ import annotations

from webrelax.compiler import ops
from webrelax.compiler.ir import CallLibrary, FunctionBuilder, Module, Tensor, reference
from webrelax.compiler.ir.liveness import Lives, TensorKey, tensor_lives
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Var

from ..ops.cases import f32, i32, module_of

N = Var("n", 1)
CACHE = f32(1, 8, 1, 2)


def lives_of(module: Module, name: str = "f") -> Lives:
    legal = legalize(module)
    return tensor_lives(legal, legal.functions[name])


def last_use(lives: Lives, tensor: TensorKey) -> str:
    """The binding that reads a tensor last."""
    return "end" if lives.dies[tensor] == lives.end else lives.order[lives.dies[tensor]].name.name


def test_a_chain() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 4))
    first = b.op(ops.relu, x)
    second = b.op(ops.add, b.op(ops.exp_of, first), first)
    lives = lives_of(module_of(b.finish(b.op(ops.row_sum, second))))
    assert lives.sizes == {("relu", 0): N * 16, ("exp", 0): N * 16, ("add", 0): N * 16, ("row_sum", 0): N * 4}
    assert [(lives.born[t], last_use(lives, t)) for t in lives.sizes] == [
        (0, "add"), (1, "add"), (2, "row_sum"), (3, "end"),
    ]  # fmt: skip
    assert list(map(set, lives.reads)) == [set(), {("relu", 0)}, {("exp", 0), ("relu", 0)}, {("add", 0)}]
    assert list(map(set, lives.writes)) == [{("relu", 0)}, {("exp", 0)}, {("add", 0)}, {("row_sum", 0)}]


def test_sizes_are_those_of_the_call_not_of_the_program() -> None:
    b = FunctionBuilder("f")
    module = legalize(module_of(b.finish(b.op(ops.relu, b.param("x", f32(N, 4))))))
    b = FunctionBuilder("g")
    y = b.param("y", Tensor(dtype="f32", ndim=2))
    cast = b.match_cast(y, f32(Var("k", 0, 3), 4))
    grown = b.op(ops.relu, b.op(ops.concat, cast, cast, axis=0))
    module = legalize(module_of(module.functions["f"], b.finish(grown)))
    assert list(tensor_lives(module, module.functions["g"]).sizes.values()) == [Var("k", 0, 3) * 32] * 2


def test_an_unused_result_dies_at_once() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    b.op(ops.exp_of, x)
    lives = lives_of(module_of(b.finish(b.op(ops.relu, x))))
    assert last_use(lives, ("exp", 0)) == "exp"


def test_other_names_of_a_tensor() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    first, second, third = b.op(ops.relu, x), b.op(ops.exp_of, x), b.op(ops.negate, x)
    nested = b.make_tuple(first, b.make_tuple(second, third))
    cast = b.match_cast(b.get_item(b.get_item(nested, 1), 0), f32(Var("k")))
    other = b.emit(cast, "other")
    lives = lives_of(module_of(b.finish(b.op(ops.tanh, other))))
    # Taking the second tensor out of the tuples is no use of the others.
    assert [last_use(lives, (name, 0)) for name in ("relu", "exp", "negate")] == ["relu", "tanh", "negate"]


def test_what_a_call_overwrites_lives_on_in_its_result() -> None:
    b = FunctionBuilder("f")
    x, new, ids = b.param("x", CACHE), b.param("new", f32(N, 1, 2)), b.param("ids", i32(N))
    cache, rows = b.op(ops.relu, x), b.op(ops.exp_of, new)
    after = b.op(ops.kv_append, cache, rows, ids, ids)
    lives = lives_of(module_of(b.finish(b.op(ops.flatten, after))))
    assert list(lives.sizes) == [("relu", 0), ("exp", 0), ("flatten", 0)]
    assert last_use(lives, ("relu", 0)) == "flatten"
    assert lives.writes[2] == {("relu", 0)}
    assert lives.reads[2] == {("exp", 0)}


def test_choices() -> None:
    b = FunctionBuilder("f")
    x, flag = b.param("x", f32(N)), b.param("flag", i32())
    before = b.op(ops.relu, x)
    then, orelse = b.arm(), b.arm()
    one = then.op(ops.exp_of, before)
    other = orelse.op(ops.negate, x)
    chosen = b.if_else(flag, then.block(one), orelse.block(orelse.op(ops.tanh, other)))
    lives = lives_of(module_of(b.finish(b.op(ops.sigmoid, chosen))))
    assert [binding.name.name for binding in lives.order] == ["relu", "exp", "negate", "tanh", "chosen", "sigmoid"]
    assert [last_use(lives, t) for t in lives.sizes] == ["exp", "sigmoid", "tanh", "sigmoid", "end"]


def test_calls_of_functions() -> None:
    b = FunctionBuilder("second")
    p, q = b.param("p", f32(N)), b.param("q", f32(N))
    second = b.finish(b.op(ops.relu, p), q)
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    first, other = b.op(ops.exp_of, x), b.op(ops.tanh, x)
    result = b.call(reference(second), first, other)
    lives = lives_of(module_of(second, b.finish(b.get_item(result, 1))))
    # The callee hands its second argument back; what it allocates itself is not the caller's.
    assert list(lives.sizes) == [("exp", 0), ("tanh", 0)]
    assert [last_use(lives, t) for t in lives.sizes] == ["result", "end"]


def test_a_callee_that_nobody_knows_may_give_any_argument() -> None:
    b = FunctionBuilder("double")
    double = b.finish(b.op(ops.relu, b.param("x", f32(N))))
    b = FunctionBuilder("f")
    x, callee = b.param("x", f32(N)), b.param("callee", reference(double).annotation)
    first = b.op(ops.exp_of, x)
    lives = lives_of(module_of(double, b.finish(b.call(callee, first))))
    assert last_use(lives, ("exp", 0)) == "end"


def test_library_routines() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    outputs = (f32(N, 2), Tensor(dtype="f32", ndim=1), f32(3))
    three = b.emit(CallLibrary("three", (b.op(ops.relu, x),), outputs), "three")
    lives = lives_of(module_of(b.finish(b.get_item(three, 2))))
    # What has an unknown size is the routine's to allocate.
    assert lives.sizes == {("relu", 0): N * 4, ("three", 0): N * 8, ("three", 2): 12}
    assert [last_use(lives, t) for t in lives.sizes] == ["three", "three", "end"]
