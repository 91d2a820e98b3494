"""Every operator's programs as one module of kernels, fused as the pipeline fuses them, against the interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from webrelax.compiler.ir import CallTIR, Module, Name, ShapeValue, all_bindings
from webrelax.compiler.native.cpu import CpuDevice, compiled_device
from webrelax.compiler.pipeline import lower, passes
from webrelax.compiler.schedule import schedule
from webrelax.compiler.source import KernelSource
from webrelax.compiler.symbolic import evaluate
from webrelax.compiler.target import WASM
from webrelax.compiler.wasm import emit

from ..ops.cases import CASES, M, N
from .machine import check_call, slots_of


@dataclass(frozen=True)
class Compiled:
    """The modules by the operator's name, and each program's kernel."""

    modules: dict[str, Module]
    kernels: dict[tuple[str, str], KernelSource]
    device: CpuDevice


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    modules = {name: dict(lower(case.module, WASM, passes(())))["lower_shapes"] for name, case in CASES.items()}
    programs = {(name, p.name): p for name, module in modules.items() for p in module.programs.values()}
    kernels = {key: emit(schedule(program, WASM), slots_of(program)) for key, program in programs.items()}
    return Compiled(modules, kernels, compiled_device(list(kernels.values())))


# What is computed from values that only a run tells has no fixed inputs: its programs are those of the others.
STATIC = [name for name in CASES if not name.startswith(("unique", "nonzero"))]


@pytest.mark.parametrize("name", STATIC)
def test_operator(name: str, compiled: Compiled) -> None:
    case, module = CASES[name], compiled.modules[name]
    function = module.functions["f"]
    for n, m in ((0, 0), (5, 4), (40, 3)):
        n = max(n, case.least)
        values = dict(zip((p.name for p in function.params), case.inputs(n, m), strict=True))
        for binding in all_bindings(function.body):
            call = binding.value
            if isinstance(call, Name):
                values[binding.name.name] = values[call.name]
                continue
            assert isinstance(call, CallTIR)
            program = module.programs[call.program]
            inputs = [values[a.name] for a in call.args if isinstance(a, Name)]
            assert not any(isinstance(a, ShapeValue) for a in call.args)
            symbols = {s: evaluate(e, {N: n, M: m}) for s, e in zip(program.symbols, call.sym_args, strict=True)}
            kernel = compiled.kernels[name, program.name]
            outputs = check_call(compiled.device, kernel, program, inputs, symbols, 2e-5)
            values[binding.name.name] = outputs[0] if len(outputs) == 1 else tuple(outputs)
        assert isinstance(function.body.result, Name)
        result = np.asarray(values[function.body.result.name])
        assert result.size == 0 or np.isfinite(result).all()
