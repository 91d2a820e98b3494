"""Runs scheduled programs as WebAssembly and compares them with the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from webrelax.compiler.native.cpu import CpuDevice, compiled_device
from webrelax.compiler.native.device import run_kernel
from webrelax.compiler.schedule import schedule
from webrelax.compiler.source import KernelSource
from webrelax.compiler.symbolic import Var, evaluate
from webrelax.compiler.target import WASM
from webrelax.compiler.tir import Program
from webrelax.compiler.tir.interpreter import NUMPY_DTYPES, run
from webrelax.compiler.wasm import emit

from ..schedule.conftest import random_array

Array = np.ndarray[Any, Any]


def check_program(
    program: Program,
    values: Sequence[Sequence[int]] = ((),),
    given: Mapping[str, Callable[[Mapping[Var, int]], Array]] | None = None,
    tolerance: float = 1e-5,
) -> str:
    """Compares at each assignment of the symbols; returns the C text. `given` makes the inputs that are not random."""
    kernel = emit(schedule(program, WASM), slots_of(program))
    device = compiled_device([kernel])
    rng = np.random.default_rng(1)
    for assignment in values:
        symbols = dict(zip(program.symbols, assignment, strict=True))
        inputs = [
            given[b.name](symbols) if given and b.name in given else random_array(b, symbols, rng)
            for b in program.inputs
        ]
        check_call(device, kernel, program, inputs, symbols, tolerance)
    return kernel.text


def slots_of(program: Program) -> dict[Var, int]:
    """Where the symbols stand in the tables of these tests."""
    return {s: 3 * at + 2 for at, s in enumerate(program.symbols)}


def check_call(
    device: CpuDevice,
    kernel: KernelSource,
    program: Program,
    inputs: Sequence[Array],
    symbols: Mapping[Var, int],
    tolerance: float = 1e-5,
) -> list[Array]:
    """Runs a kernel of the device in one part and in three, compares with the interpreter, and gives the outputs."""
    expected = run(program, inputs, symbols)
    sources = dict(program.in_place)
    table = [0] * 32
    for symbol, slot in slots_of(program).items():
        table[slot] = symbols[symbol]
    grid = [evaluate(e, symbols) for e in schedule(program, WASM).grid]
    outputs = [b for b in program.outputs if b.name not in sources]
    for device.parts in (1, 3):
        fresh = [np.full([evaluate(e, symbols) for e in b.shape], 77, NUMPY_DTYPES[b.dtype]) for b in outputs]
        arrays = run_kernel(kernel, grid, [*inputs, *fresh], table, device)
        after = {b.name: a for b, a in zip((*program.inputs, *outputs), arrays, strict=True)}
        for buffer, want in zip(program.outputs, expected, strict=True):
            got: Array = after[sources.get(buffer.name, buffer.name)]
            scale = max(1.0, float(np.abs(want).max(initial=0))) if want.dtype.kind == "f" else 1.0
            message = f"{program.name}: {buffer.name} at {dict(symbols)}"
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=message)
    return expected
