"""Runs scheduled programs on wgpu and compares them with the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.native.device import run_kernel
from webrelax.compiler.schedule import check_bindings, rule_for, schedule
from webrelax.compiler.source import KernelSource
from webrelax.compiler.symbolic import Var, evaluate
from webrelax.compiler.target import WEBGPU, Target
from webrelax.compiler.tir import Buffer, Program
from webrelax.compiler.tir.interpreter import NUMPY_DTYPES, run
from webrelax.compiler.wgsl import emit

Array = np.ndarray[Any, Any]
Check = Callable[..., KernelSource]


def random_array(buffer: Buffer, symbols: Mapping[Var, int], rng: np.random.Generator) -> Array:
    shape = [evaluate(e, symbols) for e in buffer.shape]
    if buffer.dtype == "f32":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(0, 1 << 31, shape).astype(NUMPY_DTYPES[buffer.dtype])


def check_program(
    program: Program,
    values: Sequence[Sequence[int]] = ((),),
    given: Mapping[str, Callable[[Mapping[Var, int]], Array]] | None = None,
    rule: str | None = None,
    tolerance: float = 1e-5,
    most_bytes: int = 8192,
    target: Target = WEBGPU,
) -> KernelSource:
    """Compares at each assignment of the symbols, in order. `given` makes the inputs that are not random."""
    if rule is not None:
        assert rule_for(program).name == rule
    kernel = schedule(program, target)
    check_bindings(kernel, target)
    slots = {s: 3 * at + 2 for at, s in enumerate(program.symbols)}
    source = emit(kernel, slots, 8)
    assert len(source.text) <= most_bytes, source.text
    rng = np.random.default_rng(1)
    sources = dict(program.in_place)
    for assignment in values:
        symbols = dict(zip(program.symbols, assignment, strict=True))
        inputs = [
            given[b.name](symbols) if given and b.name in given else random_array(b, symbols, rng)
            for b in program.inputs
        ]
        expected = run(program, inputs, symbols)
        fresh = [
            np.full([evaluate(e, symbols) for e in b.shape], 77, NUMPY_DTYPES[b.dtype])
            for b in program.outputs
            if b.name not in sources
        ]
        table = [0] * 32
        for symbol, slot in slots.items():
            table[slot] = symbols[symbol]
        grid = [evaluate(e, symbols) for e in kernel.grid]
        arrays = run_kernel(source, grid, [*inputs, *fresh], table)
        after = {b.buffer.name: a for b, a in zip(kernel.bindings, arrays, strict=True)}
        for buffer, want in zip(program.outputs, expected, strict=True):
            got: Array = after[sources.get(buffer.name, buffer.name)]
            scale = max(1.0, float(np.abs(want).max(initial=0))) if want.dtype.kind == "f" else 1.0
            np.testing.assert_allclose(
                got,
                want,
                rtol=tolerance,
                atol=tolerance * scale,
                err_msg=f"{buffer.name} at {assignment}\n{source.text}",
            )
    return source


@pytest.fixture
def check() -> Check:
    return check_program
