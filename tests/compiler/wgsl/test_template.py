"""WGSL templates: what is written around them and for their parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from jinja2 import UndefinedError

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.ir import Tensor
from webrelax.compiler.native.device import run_kernel
from webrelax.compiler.passes.dispatch_library import Arguments, Attributes
from webrelax.compiler.symbolic import Var, as_expr, ceildiv
from webrelax.compiler.target import WEBGPU, Target
from webrelax.compiler.tir import Program, ProgramBuilder
from webrelax.compiler.wgsl.template import Launch, Parameter, TemplateRoutine, render

N, M = Var("n", 0, 100), Var("m", 0, 100)
TEMPLATE = """
@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
{% if factor %}
  if i32(id.x) < {{ count }} {
    y[id.x] = {{ factor }} * x[id.x] + {{ offset }};
  }
{% endif %}
}
"""


def scaled(arguments: Arguments, attributes: Attributes) -> Program:
    b = ProgramBuilder("scaled")
    x = b.input("x", (N + 2 * M,), "f32")
    return b.finish(b.compute("y", (N + 2 * M,), lambda i: x[i] * attributes["factor"] + 1.5))


def launch(program: Program, attributes: Attributes) -> Launch:
    (count,) = program.buffer("x").shape
    parameters: dict[str, Parameter] = {"count": count, "factor": float(attributes["factor"]), "offset": 1.5}
    return Launch(parameters, (32, 1, 1), (ceildiv(count, 32), 1, 1))


ROUTINE = TemplateRoutine("scale", scaled, TEMPLATE, launch)
ATTRIBUTES = {"factor": -0.1}
PROGRAM = scaled((Tensor((N,), "f32"),), ATTRIBUTES)


def test_golden() -> None:
    source, grid = render(ROUTINE, PROGRAM, ATTRIBUTES, {N: 1, M: 4}, 2, WEBGPU)
    assert grid == (ceildiv(N + 2 * M, 32), as_expr(1), as_expr(1))
    assert source.access == ("read", "read_write")
    assert (source.name, source.entry, source.workgroup) == ("scale", "main", (32, 1, 1))
    assert source.text == (
        "@group(0) @binding(0) var<uniform> table: array<vec4<i32>, 2>;\n"
        "@group(0) @binding(1) var<storage, read> x: array<f32>;\n"
        "@group(0) @binding(2) var<storage, read_write> y: array<f32>;\n"
        "\n"
        "@compute @workgroup_size(32, 1, 1)\n"
        "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        "  if i32(id.x) < (table[1].x * 2 + table[0].y) {\n"
        "    y[id.x] = (-0.10000000149011612f) * x[id.x] + 1.5f;\n"
        "  }\n"
        "}\n"
    )


def test_it_runs() -> None:
    source, _ = render(ROUTINE, PROGRAM, ATTRIBUTES, {N: 1, M: 4}, 2, WEBGPU)
    x = np.arange(40, dtype=np.float32)
    _, y = run_kernel(source, (2, 1, 1), [x, np.zeros_like(x)], [0, 30, 0, 0, 5])
    assert np.abs(y.astype(np.float32) - (1.5 - 0.1 * x)).max() < 1e-6


def test_vectors_and_what_is_overwritten() -> None:
    b = ProgramBuilder("overwrite")
    x, at = b.input("x", (8, 4), "f32"), b.input("at", (2,), "i32")
    program = b.finish(b.scatter("z", x, (2, 4), lambda i, j: (at[i], j), lambda i, j: x[i, j]))
    routine = replace(ROUTINE, vectors=("x",), launch=lambda *_: Launch({"factor": 0}, (1, 1, 1), (1, 1, 1)))
    source, _ = render(routine, program, {}, {}, 1, WEBGPU)
    assert source.access == ("read_write", "read")
    assert "var<storage, read_write> x: array<vec4<f32>>;" in source.text
    assert "z:" not in source.text


def test_a_missing_parameter_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render(replace(ROUTINE, template="{{ nothing }}"), PROGRAM, ATTRIBUTES, {N: 0, M: 1}, 1, WEBGPU)


@pytest.mark.parametrize("target", [Target(storage_buffers=1), Target(workgroup_invocations=16)])
def test_limits_of_the_target(target: Target) -> None:
    with pytest.raises(WebrelaxError, match="the routine scale binds 2 buffers and has 32 threads"):
        render(ROUTINE, PROGRAM, ATTRIBUTES, {N: 0, M: 1}, 1, target)
