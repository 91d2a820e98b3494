"""Relax, table 2: what planning saves of a model's activations, and the pool that it is compared with."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder
from webrelax.compiler.passes import legalize
from webrelax.compiler.pipeline import passes
from webrelax.compiler.symbolic import Var
from webrelax.compiler.wgsl.library import LIBRARY

from ..ops.cases import f32, module_of


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[3] / "bench" / "memory.py"
    spec = importlib.util.spec_from_file_location("bench_memory", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_memory"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pool_reuses_blocks_of_the_same_size(bench: ModuleType) -> None:
    n = Var("n", 1)
    b = FunctionBuilder("f")
    x = b.param("x", f32(2, n))
    first = b.op(ops.transpose, b.op(ops.exp_of, x), axes=(1, 0))
    second = b.op(ops.transpose, b.op(ops.relu, first), axes=(1, 0))
    module = legalize(module_of(b.finish(b.op(ops.row_sum, second))))
    # Two blocks of 8 n bytes; the result's 8 fit a block of the run with n = 1, before it or in it.
    for lengths, expected in (((1,), 16), ((1, 2), 48), ((2, 1, 1), 48), ((2, 3), 32 + 8 + 48)):
        assert bench.pool_bytes(module, module.functions["f"], [{n: length} for length in lengths]) == expected


@pytest.mark.parametrize("library", [LIBRARY, ()], ids=["library", "generated"])
@pytest.mark.parametrize("config", ["SMOLLM2_135M", "LLAMA3_8B"])
def test_planning_saves_what_the_paper_says(bench: ModuleType, config: str, library: object) -> None:
    steps = passes(library)  # type: ignore[arg-type]
    before = steps[: [step.name for step in steps].index("plan_memory")]
    # Layers are alike: nothing depends on their number.
    prefill, decode = bench.measure(replace(getattr(bench, config), layers=3), config, before)
    assert prefill.reduction >= 0.22
    assert decode.reduction >= 0.40
    for row in (prefill, decode):
        assert row.peak <= row.planned < min(row.baseline, row.unplanned)
