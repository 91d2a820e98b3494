"""capture: which functions are the same dispatches at each call."""

from __future__ import annotations

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder, Module, Shape, print_function
from webrelax.compiler.passes import capture
from webrelax.compiler.pipeline import PASSES
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU

from ..ops.cases import f32, i32, module_of

N = Var("n", 1, 8)


def planned(module: Module) -> Module:
    """As it is when capture runs."""
    for step in PASSES[: [step.name for step in PASSES].index("capture")]:
        module = step.run(module, WEBGPU)
    return module


def chain(n: Var = N) -> Module:
    b = FunctionBuilder("f")
    x = b.param("x", f32(n, 4))
    return module_of(b.finish(b.op(ops.softmax, b.op(ops.softmax, x))))


def test_lengths_may_vary_where_memory_stays() -> None:
    module = capture(planned(chain()))
    assert module.functions["f"].captured
    assert "captured" in print_function(module.functions["f"]).splitlines()[0]


def choice() -> Module:
    """The host reads the flag before it knows what to dispatch."""
    b = FunctionBuilder("f")
    flag, x = b.param("flag", i32(1)), b.param("x", f32(N))
    then, orelse = b.arm(), b.arm()
    return module_of(
        b.finish(b.if_else(flag, then.block(then.op(ops.exp_of, x)), orelse.block(orelse.op(ops.tanh, x))))
    )


def counted() -> Module:
    """The host reads how many there are in between."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N))
    return module_of(b.finish(b.op(ops.exp_of, b.match_cast(b.op(ops.unique, x), f32(Var("u", 1, 8))))))


@pytest.mark.parametrize(
    "module",
    [choice(), counted(), chain(Var("n", 1))],
    ids=["a choice", "a value that the host reads", "memory without a bound"],
)
def test_what_the_host_must_see_or_allocate_is_not_captured(module: Module) -> None:
    assert not capture(planned(module)).functions["f"].captured


def test_only_the_functions_that_qualify() -> None:
    b = FunctionBuilder("g")
    b.param("s", Shape((N,)))
    static = b.finish(b.op(ops.exp_of, b.param("x", f32(N))))
    both = module_of(static, *choice().functions.values())
    assert {name: f.captured for name, f in capture(planned(both)).functions.items()} == {"g": True, "f": False}
