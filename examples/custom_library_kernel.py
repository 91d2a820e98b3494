"""A kernel of your own in place of generated ones: `python examples/custom_library_kernel.py`.

A routine is a WGSL template with a tensor program that says what it computes. An entry of the library's table says
which operator it stands for, and when. The compiler does the rest: it places the results, links the kernel, and
interprets and checks it by the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, Constant, FunctionBuilder, Module, ModuleBuilder, Tensor, print_function
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.passes import Entry
from webrelax.compiler.pipeline import compile
from webrelax.compiler.symbolic import Var, as_int
from webrelax.compiler.target import Target
from webrelax.compiler.tir import Program
from webrelax.compiler.wgsl.library import LIBRARY
from webrelax.compiler.wgsl.template import Launch, TemplateRoutine

HIDDEN, FEED_FORWARD = 256, 512

# The buffers x, w and y are declared for it, and so is the table of symbols. Parameters are filled in: numbers as they
# are, floats exactly, symbolic integers as what reads them from the table.
TEMPLATE = """
var<workgroup> parts: array<f32, {{ threads }}>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) place: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = place.x * {{ columns4 }}u;
  var sum = 0.0;
  for (var c = local; c < {{ columns4 }}u; c += {{ threads }}u) {
    sum += dot(x[first + c], x[first + c]);
  }
  parts[local] = sum;
  workgroupBarrier();
  sum = 0.0;
  for (var l = 0u; l < {{ threads }}u; l++) {
    sum += parts[l];
  }
  let scale = inverseSqrt(sum / {{ columns4 * 4.0 }} + {{ eps }});
  for (var c = local; c < {{ columns4 }}u; c += {{ threads }}u) {
    y[first + c] = x[first + c] * scale * w[c];
  }
}
"""


def launch(program: Program, attributes: Mapping[str, Any]) -> Launch:
    """One workgroup a row."""
    rows, columns = program.buffer("x").shape
    threads = 32
    parameters = {"columns4": (as_int(columns) or 0) // 4, "eps": float(attributes["eps"]), "threads": threads}
    return Launch(parameters, (threads, 1, 1), (rows, 1, 1))


def has_whole_vectors(arguments: Sequence[Annotation], attributes: Mapping[str, Any], target: Target) -> bool:
    """The condition of the entry: a matrix whose rows are whole vectors of four f32."""
    match arguments[0]:
        case Tensor(shape=(_, columns), dtype="f32"):
            return (as_int(columns) or 1) % 4 == 0
    return False


def my_table() -> tuple[Entry, ...]:
    """The built-in table behind an entry of ours: the first one that fits a call wins."""
    assert ops.rms_norm.lower is not None
    # What the operator is lowered to anyway says what the routine has to compute.
    routine = TemplateRoutine("my_rms_norm", ops.rms_norm.lower, TEMPLATE, launch, vectors=("x", "w", "y"))
    return (Entry(ops.rms_norm, (routine,), has_whole_vectors), *LIBRARY)


def network() -> Module:
    """x + W2 silu(W1 rms_norm(x)) for up to 64 rows."""
    graph = FunctionBuilder("network")
    x = graph.param("x", Tensor((Var("n", 1, 64), HIDDEN), "f32"))
    norm = Constant("norm", Tensor((HIDDEN,), "f32"))
    up = Constant("up", Tensor((FEED_FORWARD, HIDDEN), "f32"))
    down = Constant("down", Tensor((HIDDEN, FEED_FORWARD), "f32"))
    h = graph.op(ops.linear, graph.op(ops.rms_norm, x, norm, eps=1e-5), up)
    function = graph.finish(graph.op(ops.add, x, graph.op(ops.linear, graph.op(ops.silu, h), down), hint="y"))
    builder = ModuleBuilder()
    builder.add_function(function)
    return builder.finish()


def main() -> None:
    """Compiles the network with and without the routine, and compares both with NumPy."""
    rng = np.random.default_rng(0)
    shapes = {"norm": (HIDDEN,), "up": (FEED_FORWARD, HIDDEN), "down": (HIDDEN, FEED_FORWARD)}
    weights = {name: (rng.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}
    x = rng.standard_normal((50, HIDDEN)).astype(np.float32)
    h = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * weights["norm"] @ weights["up"].T
    expected = x + h / (1 + np.exp(-h)) @ weights["down"].T
    for title, table in (("with my_rms_norm", my_table()), ("generated alone", ())):
        executable = compile(network(), library=table)
        (y,) = Runner.of(executable, weights).call("network", {"x": x}).values()
        kernels = ", ".join(kernel.source.name for kernel in executable.kernels)
        print(f"{title}: largest difference to NumPy {np.abs(y - expected).max():.1e}; kernels: {kernels}")
        if table:
            print(print_function(executable.stages["dispatch_library"].functions["network"]))


if __name__ == "__main__":
    main()
