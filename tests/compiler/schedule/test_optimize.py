"""The passes over kernels, and merging of bindings."""

from __future__ import annotations

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.native.device import run_kernel
from webrelax.compiler.schedule import check_bindings, merge_bindings, optimize, schedule
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU, Target
from webrelax.compiler.tir import Program, ProgramBuilder, exp
from webrelax.compiler.wgsl import emit

from .models import nibbles

N = Var("n", 1, 128)


def addition() -> Program:
    b = ProgramBuilder("add")
    x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
    return b.finish(b.compute("z", (8,), lambda i: x[i] + y[i]))


def test_a_common_subexpression_is_computed_once() -> None:
    b = ProgramBuilder("twice")
    x = b.input("x", (N,), "f32")
    u = b.compute("u", (N,), lambda i: exp(x[i]) + 1)
    v = b.compute("v", (N,), lambda i: exp(x[i]) * 2)
    text = str(optimize(schedule(b.finish(u, v))))
    assert text.count("exp(") == 1
    assert text.count("x[") == 1


def test_invariants_leave_the_loop() -> None:
    b = ProgramBuilder("invariant")
    x, y = b.input("x", (N,), "f32"), b.input("y", (N, 7), "f32")
    total = b.reduce("total", (N,), (7,), lambda i, k: y[i, k] * exp(x[i]))
    scaled = b.compute("scaled", (7, N), lambda k, i: total[i])
    lines = str(optimize(schedule(b.finish(scaled)))).splitlines()
    loop = next(at for at, line in enumerate(lines) if line.strip().startswith("for"))
    assert any("exp(" in line for line in lines[:loop])
    assert not any("exp(" in line for line in lines[loop:])


def test_a_packed_word_is_loaded_once_a_run() -> None:
    b = ProgramBuilder("gemv")
    x = b.input("x", (1, 64), "f32")
    _, w = nibbles(b, 8, 64)
    kernel = optimize(schedule(b.finish(b.reduce("y", (1, 8), (64,), lambda i, o, k: x[i, k] * w[o, k]))))
    assert str(kernel).count("w[") == 2
    assert [b.vector for b in kernel.bindings] == [True, False, False]


def test_one_buffer_as_two_inputs() -> None:
    kernel = merge_bindings(schedule(addition()), [(0, 1)])
    assert [b.buffer.name for b in kernel.bindings] == ["x", "z"]
    x = np.arange(8, dtype=np.float32)
    _, z = run_kernel(emit(kernel, {}, 1), (1, 1, 1), [x, np.zeros(8, np.float32)])
    np.testing.assert_array_equal(z, x * 2)


def test_too_many_bindings() -> None:
    b = ProgramBuilder("wide")
    inputs = [b.input(f"x{i}", (8,), "f32") for i in range(8)]
    kernel = schedule(b.finish(b.compute("y", (8,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]))))
    with pytest.raises(WebrelaxError, match="binds 9 storage buffers"):
        check_bindings(kernel, WEBGPU)
    check_bindings(merge_bindings(kernel, [(0, 1)]), WEBGPU)


def test_limits() -> None:
    with pytest.raises(WebrelaxError, match="a binding of small"):
        schedule(addition(), Target(name="small", binding_size=16))
    b = ProgramBuilder("halves")
    x = b.input("x", (8,), "f16")
    with pytest.raises(WebrelaxError, match="is f16"):
        schedule(b.finish(b.compute("y", (8,), lambda i: x[i])))
    b = ProgramBuilder("gemv")
    left, right = b.input("x", (1, 4096), "f32"), b.input("w", (64, 4096), "f32")
    product = b.reduce("y", (1, 64), (4096,), lambda i, o, k: left[i, k] * right[o, k])
    with pytest.raises(WebrelaxError, match="workgroup memory"):
        schedule(b.finish(product), Target(workgroup_memory=64))


def test_the_text_is_the_same_every_time() -> None:
    assert str(optimize(schedule(addition()))) == str(optimize(schedule(addition())))
