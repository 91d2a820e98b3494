"""Why a kernel ends where it does: the reasons agree with what fusion does."""

from __future__ import annotations

import re
from typing import Any

from webrelax.compiler import ops
from webrelax.compiler.fusion import fuse_ops
from webrelax.compiler.fusion.explain import Explanation, explain
from webrelax.compiler.fusion.merge_parallel import explain_parallel
from webrelax.compiler.ir import (
    CallFunction,
    CallTIR,
    Constant,
    FunctionBuilder,
    Module,
    Operator,
    ShapeValue,
    Tensor,
)
from webrelax.compiler.passes import legalize
from webrelax.compiler.quantize import FORMATS, dequantize, packed_words
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.target import WEBGPU

from ..ops.cases import f32, i32, module_of
from .lowered import fused

N = Var("n", 1, 64)


def explained(graph: FunctionBuilder, *results: Any) -> Explanation:
    """The explanation of a function; its groups are those of `fuse_ops`."""
    module = legalize(module_of(graph.finish(*results)))
    explanation = explain(module, WEBGPU)["f"]
    assert groups(fuse_ops(module, WEBGPU)) == {group[-1]: len(group) for group in explanation.groups}
    return explanation


def groups(module: Module) -> dict[str, int]:
    """The kernels of `f` after fuse_ops, with how many calls each holds."""
    found = {}
    for binding in module.functions["f"].body.bindings:
        if isinstance(binding.value, CallTIR):
            found[binding.name.name] = 1
        elif isinstance(binding.value, CallFunction):
            found[binding.name.name] = len(module.functions[str(binding.value.callee)].body.bindings)
    return found


def test_two_reductions() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    explanation = explained(b, b.op(ops.softmax, b.op(ops.linear, x, w)))
    assert explanation.groups == (("linear",), ("softmax",))
    assert explanation.kinds == {"linear": "output fusible", "softmax": "reduction"}
    assert "both are reductions" in explanation.reasons["linear"]
    assert "softmax" in explanation.reasons["linear"]
    assert explanation.reasons["softmax"] == "its result leaves the function"


def test_two_readers() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    y = b.op(ops.silu, x)
    explanation = explained(b, b.op(ops.linear, y, w), b.op(ops.softmax, y))
    assert explanation.reasons["silu"] == "2 kernels read its result: linear, softmax"


def test_a_reader_and_a_result() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))
    y = b.op(ops.relu, x)
    assert explained(b, b.op(ops.linear, y, w), y).reasons["relu"] == "not only linear reads its result"


def test_evaluated_again() -> None:
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(6, 8))
    reason = explained(b, b.op(ops.linear, b.op(ops.exp_of, x), w)).reasons["exp"]
    assert reason == "would be evaluated again: linear reads each element 6 times, and it is not cheap"


def test_another_element() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 8))
    total = b.op(ops.reshape, b.op(ops.row_sum, x), ShapeValue((N, as_expr(1))))
    reason = explained(b, b.op(ops.divide, x, total)).reasons["row_sum"]
    assert reason == "reshape is injective: only what reads the result at its own indices goes onto it"


def test_an_index() -> None:
    b = FunctionBuilder("f")
    table, ids = b.param("table", f32(9, 4)), b.param("ids", i32(N))
    assert explained(b, b.op(ops.take, table, b.op(ops.relu, ids))).reasons["relu"] == "take uses it as an index"


def test_too_many_buffers() -> None:
    b = FunctionBuilder("f")
    y: Any = b.param("x0", f32(N))
    for at in range(1, 10):
        y = b.op(ops.add, y, b.param(f"x{at}", f32(N)))
    explanation = explained(b, y)
    reasons = [reason for reason in explanation.reasons.values() if "buffers" in reason]
    assert reasons
    assert all(f"{WEBGPU.storage_buffers} are allowed" in reason for reason in reasons)


def test_an_in_place_write() -> None:
    """What reads the cache before it is overwritten stays before it."""
    b = FunctionBuilder("f")
    cache, new = b.param("cache", f32(1, 16, 2, 4)), b.param("new", f32(N, 2, 4))
    positions, sequences = b.param("positions", i32(N)), b.param("sequences", i32(N))
    before = b.op(ops.negate, cache)
    after = b.op(ops.kv_append, cache, new, positions, sequences)
    explanation = explained(b, b.op(ops.add, before, after), after)
    assert "crosses an in-place write: kv_append" in explanation.reasons["negate"]
    assert explanation.kinds["kv_append"] == "opaque"


def test_why_calls_do_not_run_beside_each_other() -> None:
    b = FunctionBuilder("f")
    x: Any = b.param("x", f32(1, 64))
    few = [b.op(ops.linear, x, b.param(f"w{at}", f32(8, 64))) for at in range(2)]
    many = [b.op(ops.linear, x, b.param(f"v{at}", f32(8, 64))) for at in range(5)]
    module = legalize(module_of(b.finish(*few, *many)))
    function = module.functions["f"]
    names = [binding.name.name for binding in function.body.bindings if isinstance(binding.value, CallTIR)]
    assert explain_parallel(module, WEBGPU, function, names[:2]) == {}
    refused = explain_parallel(module, WEBGPU, function, names)
    assert refused
    assert all(reason.startswith(f"not beside {names[0]}: ") for name, reason in refused.items() if name != names[0])
    assert any("buffers" in reason for reason in refused.values())


def test_kernels_that_would_be_too_much_text() -> None:
    """Query and key of a prompt: each tile is written out, and two of them are more than a kernel's text may be."""
    b = FunctionBuilder("f")
    x: Any = b.param("x", f32(N, 64))
    names = []
    for name in ("q", "k"):
        words = Constant(name, Tensor((packed_words(FORMATS["Q4_1"], 64, 64),), "u32"))
        names.append(b.op(ops.linear, x, b.op(dequantize, words, format=FORMATS["Q4_1"], rows=64, columns=64)))
    module = fused(module_of(b.finish(*names)))
    refused = explain_parallel(module, WEBGPU, module.functions["f"], ["linear", "linear_1"])
    assert list(refused) == ["linear_1"]
    assert re.fullmatch(r"not beside linear: its text would be about \d+ bytes, 7800 are allowed", refused["linear_1"])


def test_fused_functions_are_not_explained_again() -> None:
    b = FunctionBuilder("f")
    module = fuse_ops(legalize(module_of(b.finish(b.op(ops.negate, b.op(ops.relu, b.param("x", f32(N))))))), WEBGPU)
    assert set(explain(module, WEBGPU)) == {"f"}


def test_names_do_not_matter() -> None:
    """Renamed operators: the same groups, and the same reasons but for the names."""
    b = FunctionBuilder("f")
    x, w = b.param("x", f32(N, 8)), b.param("w", f32(8, 8))

    def renamed(operator: Operator, name: str) -> Operator:
        return Operator(name, operator.deduce, operator.lower, operator.overwrites)

    y = b.op(renamed(ops.softmax, "b"), b.op(renamed(ops.linear, "a"), x, w))
    reasons = explained(b, y).reasons
    assert list(reasons) == ["a", "b"]
    assert "both are reductions" in reasons["a"]
