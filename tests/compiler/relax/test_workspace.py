"""Workspace lifting: case W1 (fig. 11) of Relax."""

from __future__ import annotations

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder, all_bindings
from webrelax.compiler.passes import eliminate_dead_code, lift_workspace, plan_memory
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU

from ..fusion.lowered import fused
from ..ops.cases import f32, module_of, softmax
from .figure import LENGTHS, check_text, check_values, dispatches, normal

N = Var("n", 1, 8)


def test_w1_the_workspace_of_a_split_sum_is_a_planned_tensor_of_the_graph() -> None:
    b = FunctionBuilder("f")
    x, w, r = b.param("x", f32(N, 4096)), b.param("w", f32(32, 4096)), b.param("r", f32(N, 32))
    lv0 = b.op(ops.tanh, x, hint="lv0")
    lv1 = b.op(ops.add, r, b.op(ops.linear, lv0, w), hint="lv1")
    lv2 = b.op(ops.softmax, lv1, hint="lv2")
    module = fused(module_of(b.finish(b.op(ops.row_sum, b.op(ops.multiply, lv2, r), hint="lv3"))))
    lifted = eliminate_dead_code(lift_workspace(module, WEBGPU))
    planned = plan_memory(lifted, WEBGPU)
    stages = {"after fuse_tir": module, "after lift_workspace": lifted, "after plan_memory": planned}
    check_text("w1_split_k", stages)

    # One dispatch becomes two; the parts of the sums are an ordinary tensor between them.
    one, two = (dispatches(m.functions["f"]) for m in (module, lifted))
    assert len(two) == len(one) + 1
    bindings = {b.name.name: b for b in all_bindings(planned.functions["f"].body)}
    workspace = bindings["partial"]
    assert workspace.name.annotation == f32(4, N, 32)
    # It has a place in a storage, and another tensor has the same bytes when the total is made.
    (place,) = workspace.places
    assert place.storage in planned.storages
    assert place.size == 4 * 4 * 8 * 32
    (after,) = bindings["lv2"].places
    assert (after.storage, after.offset) == (place.storage, place.offset)

    for n in (*LENGTHS, 8):
        args = normal(n, 4096), normal(32, 4096, seed=1) / 64, normal(n, 32, seed=2)
        expected = (softmax(args[2] + np.tanh(args[0]) @ args[1].T) * args[2]).sum(1)
        check_values(stages, "f", args, expected)
