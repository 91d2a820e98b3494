"""lift_workspace: Relax, fig. 11: a matmul in parts, whose workspace is a tensor of the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import CallTIR, FunctionBuilder, all_bindings, verify
from webrelax.compiler.passes import lift_workspace
from webrelax.compiler.passes.lift_workspace import parts_for, parts_of, split
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import Program, ProgramBuilder, rsqrt
from webrelax.compiler.tir.interpreter import run

from ..fusion.lowered import fused
from ..ops.cases import f32, module_of
from ..schedule.conftest import check_program, random_array
from ..schedule.models import nibble_words, nibbles

N = Var("n", 1, 8)
M = Var("m", 0, 4095)


def matmul(rows: Expr | int, columns: int, length: Expr | int) -> Program:
    b = ProgramBuilder("matmul")
    x, w, r = (
        b.input("x", (rows, length), "f32"),
        b.input("w", (columns, length), "f32"),
        b.input("r", (rows, columns), "f32"),
    )
    y = b.reduce("y", (rows, columns), (length,), lambda i, o, k: x[i, k] * w[o, k])
    return b.finish(b.compute("z", (rows, columns), lambda i, o: y[i, o] * 0.5 + r[i, o]))


@pytest.mark.parametrize(
    ("rows", "columns", "length", "parts"),
    [(1, 40, 4096, 4), (N, 24, 2048, 2), (1, 9, 3001, 2), (2, 33, M + 1, 4), (N, 24, M + N, 8)],
)
def test_on_the_device(rows: Expr | int, columns: int, length: Expr | int, parts: int) -> None:
    program = matmul(rows, columns, length)
    found = split(program, parts)
    assert found is not None
    sizes = [{"m": 0, "n": 1}, {"m": 9, "n": 8}, {"m": 4095, "n": 3}]
    for half in (found.partial, found.total):
        check_program(half, [[size[s.name] for s in half.symbols] for size in sizes])
    for size in sizes:
        symbols = {s: size[s.name] for s in program.symbols}
        inputs = {b.name: random_array(b, symbols, np.random.default_rng(2)) for b in program.inputs}
        (want,) = run(program, list(inputs.values()), symbols)
        inputs["y_parts"] = run(found.partial, [inputs[b.name] for b in found.partial.inputs], symbols)[0]
        (got,) = run(found.total, [inputs[b.name] for b in found.total.inputs], symbols)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_decode_and_scatter_on_the_device() -> None:
    b = ProgramBuilder("down")
    x, r = b.input("x", (1, 2048), "f32"), b.input("r", (1, 40), "f32")
    _, w = nibbles(b, 40, 2048)
    y = b.reduce("y", (1, 40), (2048,), lambda i, o, k: x[i, k] * w[o, k])
    program = b.finish(b.scatter("z", r, (1, 40), lambda i, o: (i, o), lambda i, o: r[i, o] + y[i, o]))
    found = split(program, 2)
    assert found is not None
    assert found.total.in_place == (("z", "r"),)
    assert [b.name for b in found.partial.inputs] == ["x", "w"]
    source = check_program(found.partial, given={"w": lambda s: nibble_words(40, 2048)})
    assert "select" not in source.text.split("fn main")[1]  # the parts are of one length
    check_program(found.total)


def test_twins_have_two_workspaces() -> None:
    b = ProgramBuilder("gated")
    x, w, v = b.input("x", (1, 2048), "f32"), b.input("w", (16, 2048), "f32"), b.input("v", (16, 2048), "f32")
    gate, up = (b.reduce(n, (1, 16), (2048,), lambda i, o, k, m=m: x[i, k] * m[o, k]) for n, m in (("g", w), ("u", v)))
    found = split(b.finish(b.compute("y", (1, 16), lambda i, o: rsqrt(gate[i, o] * gate[i, o] + 1) * up[i, o])), 2)
    assert found is not None
    assert [b.name for b in found.partial.outputs] == ["g_parts", "u_parts"]
    check_program(found.partial)
    check_program(found.total)


def test_thresholds() -> None:
    assert parts_for(threads=256, length=8192, wanted=2048) == 8
    assert parts_for(threads=256, length=4096, wanted=2048) == 4  # parts of a thousand positions
    assert parts_for(threads=1025, length=8192, wanted=2048) == 1  # more than half of what is wanted
    assert parts_for(threads=1, length=None, wanted=2048) == 16
    assert parts_of(matmul(4, 40, 4096), WEBGPU) == 4
    assert parts_of(matmul(N, 40, M + N), WEBGPU) == 4
    assert parts_of(matmul(4, 40, 2047), WEBGPU) == 1
    assert parts_of(matmul(64, 1024, 4096), WEBGPU) == 1
    assert parts_of(matmul(64, 1024, 4096), replace(WEBGPU, parallel_threads=8192)) == 4
    assert parts_of(matmul(1, 40, 4096), WEBGPU) == 1  # threads of one workgroup share it
    assert parts_of(matmul(1, 40, 1 << 16), WEBGPU) == 2


@pytest.mark.parametrize("rows", [1, Var("n", 1, 128)])
@pytest.mark.parametrize(("columns", "length"), [(576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576)])
def test_a_small_model_stays_as_it_is(rows: Expr | int, columns: int, length: int) -> None:
    assert parts_of(matmul(rows, columns, length), WEBGPU) == 1


def test_sums_that_are_no_products_stay() -> None:
    b = ProgramBuilder("row")
    x = b.input("x", (4, 8192), "f32")
    assert parts_of(b.finish(b.reduce("y", (4,), (8192,), lambda i, k: x[i, k])), WEBGPU) == 1


def test_every_call_of_a_program_is_split() -> None:
    b = FunctionBuilder("f")
    x, w, v = b.param("x", f32(8, 4096)), b.param("w", f32(16, 4096)), b.param("v", f32(16, 4096))
    y = b.op(ops.add, b.op(ops.softmax, b.op(ops.linear, x, w)), b.op(ops.softmax, b.op(ops.linear, x, v)))
    after = lift_workspace(fused(module_of(b.finish(y))), WEBGPU)
    verify(after)
    calls = [b.value.program for b in all_bindings(after.functions["f"].body) if isinstance(b.value, CallTIR)]
    assert calls.count("linear_partial") == 2
