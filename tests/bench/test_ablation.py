"""The ablation counts what it says, on a model of one layer whose kernels were counted by hand."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.executable import Executable
from webrelax.compiler.frontend.llama import LlamaConfig
from webrelax.compiler.pipeline import PASSES

LEVELS = ("nothing", "+ fusion", "+ library", "+ capture")
TINY = LlamaConfig(64, 32, 1, 4, 2, 8, 48, 1e-5, 1e4, True, False)

# In front of the layer: take. In the layer: norm; three projections; a reshape each, of which two go through rope and
# two into the cache; attention, reshape, projection, add; norm; gate, silu, up, multiply, down, add. Behind it:
# last_row, norm, output.
OPERATORS = 1 + (1 + 3 + 3 + 2 + 2 + 1 + 3 + 1 + 4 + 2) + 3

# take | norm | query, key, value | reshape, rope beside reshape, rope, append | reshape, append beside the scores |
# softmax | values | reshape, projection, add | norm | gate, silu, up, multiply | down | add, last_row, norm | output.
# Alone are take, two norms, down and output; softmax and values are parts of attention, whose scores have company.
FUSED_KERNELS, FUSED = 13, OPERATORS - 5

# Attention is two routines; reshape and append are left, and still fused, without it.
LIBRARY_KERNELS, LIBRARY_FUSED = 13, OPERATORS - 6


@pytest.fixture(scope="module")
def compiled(ablation: ModuleType) -> dict[str, Executable]:
    return {
        level: ablation.compile_with(ablation.export(TINY, 256, 16), ablation.steps(level)) for level in ablation.LEVELS
    }


def test_rows_add_passes_up_to_the_whole_pipeline(ablation: ModuleType) -> None:
    names = {level: [step.name for step in ablation.steps(level)] for level in LEVELS}
    assert tuple(ablation.LEVELS) == LEVELS
    assert names["nothing"] == [
        "inline_calls",
        "legalize",
        "lift_workspace",
        "eliminate_dead_code",
        "plan_memory",
        "lower_shapes",
    ]
    assert set(names["+ fusion"]) - set(names["nothing"]) == {"fuse_ops", "fuse_tir", "merge_parallel"}
    assert set(names["+ library"]) - set(names["+ fusion"]) == {"dispatch_library"}
    assert names["+ capture"] == [step.name for step in PASSES]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        # Attention stands for three programs: scores, softmax and values.
        ("nothing", OPERATORS - 1 + 3),
        ("+ fusion", FUSED_KERNELS),
        ("+ library", LIBRARY_KERNELS),
        ("+ capture", LIBRARY_KERNELS),
    ],
)
def test_dispatches_of_a_step_of_decoding(
    ablation: ModuleType, compiled: dict[str, Executable], level: str, expected: int
) -> None:
    assert ablation.dispatches(compiled[level], "decode", 1, 100) == expected


@pytest.mark.parametrize(
    ("level", "fused", "library", "captured"),
    [
        ("nothing", 0, 0, 0),
        ("+ fusion", FUSED, 0, 0),
        ("+ library", LIBRARY_FUSED, 1, 0),
        ("+ capture", LIBRARY_FUSED, 1, OPERATORS),
    ],
)
def test_operators_that_each_step_touched(
    ablation: ModuleType, compiled: dict[str, Executable], level: str, fused: int, library: int, captured: int
) -> None:
    found = ablation.shares(compiled[level].stages, "decode")
    assert (found.operators, found.fused, found.library, found.captured) == (OPERATORS, fused, library, captured)


def test_rows_give_the_same_logits(
    ablation: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("CONTEXT", 64), ("CHUNK", 8), ("PAST", 24)):
        monkeypatch.setattr(ablation, name, value)
    rows, differences = ablation.measure(TINY, runs=1)
    assert [(row.function, row.level) for row in rows] == [
        (f, level) for f in ("decode", "prefill") for level in LEVELS
    ]
    assert list(differences) == list(LEVELS)
    assert max(differences.values()) < 1e-5
    assert all(0 < row.host_ms < row.step_ms for row in rows)
    lines = list(ablation.table(rows))
    assert lines[0] == f"decode, {OPERATORS} operator calls"
    assert lines[3].split()[:2] == ["+", "fusion"]
    assert lines[3].split()[4] == str(FUSED_KERNELS)
    assert lines[3].split()[-3:] == ["81%", "0%", "0%"]  # 21 of 26


@pytest.mark.parametrize(("difference", "code"), [(0.0009, 0), (0.0011, 1), (float("nan"), 1)])
def test_other_logits_fail(
    ablation: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    difference: float,
    code: int,
) -> None:
    def measure(config: LlamaConfig, runs: int) -> tuple[list[Any], dict[str, float]]:
        assert (config.layers, config.vocabulary, runs) == (3, 4915, 2)
        return [], {"nothing": 0.0, "+ fusion": difference}

    monkeypatch.setattr(ablation, "measure", measure)
    monkeypatch.setattr("sys.argv", ["ablation.py", "--layers", "3", "--runs", "2", "--json"])
    assert ablation.main() == code
    output = capsys.readouterr()
    np.testing.assert_equal(json.loads(output.out)["differences"]["+ fusion"], difference)
    assert ("do not give the same logits" in output.err) == bool(code)
