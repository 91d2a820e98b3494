"""The bars of the comparison with Relax, from figures made up so that each limit is easy to see."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

LAYERS = 3
RELAX: dict[str, Any] = {
    # The best run took 6 s.
    "seconds": [{"passes": 4.0, "codegen": 3.0}, {"passes": 5.0, "codegen": 1.0}],
    "decode": {"dispatches": 60, "memory": {"planned": 9_000_000}},
    "prefill": {"dispatches": 50, "memory": {"planned": 320_000_000}},
    "wgsl": 400_000,
    "kernels": {"a": 300_000, "b": 100_000},
}
# Everything exactly at its limit.
OWN: dict[str, Any] = {
    "seconds": [3.5, 3.0],
    "dispatches": {"decode": 10 * LAYERS + 6, "decode without library": 14 * LAYERS + 6, "prefill": 999},
    "memory": {"decode": 9_000_000, "prefill": {512: 80_000_000, 2048: 80_000_000}},
    "chunk": 512,
    "throughput": {512: 90.0, 2048: 100.0},
    "wgsl": {"library": [8192, 91_808], "without": [8192]},
    "differences": {"prefill": 1e-3, "decode": 0.0},
}


def missed(versus: ModuleType, own: dict[str, Any]) -> list[str]:
    return [bar.name for bar in versus.bars(RELAX, own, LAYERS) if not bar.passed]


def test_a_figure_at_its_limit_passes(versus_relax: ModuleType) -> None:
    # 91,808 bytes bring the sum to a quarter of 400,000; no kernel may be that large.
    assert missed(versus_relax, OWN) == ["WGSL, largest kernel"]


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        (("seconds",), [3.5, 3.001], "compile: passes and code generation"),
        (("dispatches", "decode"), 37, "dispatches, decode"),
        (("dispatches", "decode without library"), 49, "dispatches, decode without library"),
        (("memory", "decode"), 9_000_004, "activations, decode"),
        (("memory", "prefill", 512), 80_000_004, "activations, prefill, chunk 512"),
        (("memory", "prefill", 2048), 80_000_004, "activations, prefill, chunk 2048"),
        (("throughput", 512), 89.9, "prefill, chunk 512 (default)"),
        (("wgsl", "library"), [8192] * 13, "WGSL, all kernels"),
        (("wgsl", "without"), [8193], "WGSL, largest kernel"),
        (("differences", "prefill"), 1.1e-3, "logits of prefill, largest difference"),
        (("differences", "decode"), float("nan"), "logits of decode, largest difference"),
    ],
)
def test_a_figure_beyond_its_limit_is_missed(
    versus_relax: ModuleType, path: tuple[str | int, ...], value: Any, name: str
) -> None:
    own = deepcopy(OWN)
    own["wgsl"] = {"library": [8192] * 12, "without": [8192]}
    assert missed(versus_relax, own) == []
    *parents, last = path
    place: Any = own
    for parent in parents:
        place = place[parent]
    place[last] = value
    assert missed(versus_relax, own) == [name]


def test_the_table_shows_both_sides_and_what_is_missed(versus_relax: ModuleType) -> None:
    bars = {bar.name: bar for bar in versus_relax.bars(RELAX, OWN, LAYERS)}
    slower = replace(bars["prefill, chunk 512 (default)"], webrelax=80.0)
    head, *rows = versus_relax.table([bars["compile: passes and code generation"], slower])
    assert head.split() == ["Relax", "webrelax", "ratio", "limit"]
    assert rows[0].split() == ["compile:", "passes", "and", "code", "generation", "[s]", "6", "3", "0.500", "3", "ok"]
    # TVM has no figure for it, and so no ratio.
    assert rows[1].split() == ["prefill,", "chunk", "512", "(default)", "[tokens/s]", "80", "90", "MISSED"]
    assert len({len(row.rsplit("  ", 1)[0]) for row in rows} | {len(head)}) == 1


def test_merged_weights_are_stacked_in_the_order_that_relax_splits_them(versus_relax: ModuleType) -> None:
    config = replace(versus_relax.SMOLLM2, layers=1, vocabulary=8, hidden=4, heads=2, kv_heads=1, head_size=2)
    config = replace(config, feed_forward=6)
    weights = versus_relax.random_weights(config, 8)
    merged = versus_relax.relax_weights(weights, 1)
    qkv, gate_up = merged["layers.0.qkv.weight"], merged["layers.0.gate_up.weight"]
    assert (qkv.shape, gate_up.shape) == ((4 + 2 + 2, 4), (12, 4))
    np.testing.assert_array_equal(qkv[4:6], weights["layers.0.attention.key.weight"])
    np.testing.assert_array_equal(qkv[6:], weights["layers.0.attention.value.weight"])
    np.testing.assert_array_equal(gate_up[:6], weights["layers.0.feed_forward.gate.weight"])
    # The tables of angles are not TVM's; all else is handed over.
    given = sum(array.size for name, array in weights.items() if not name.startswith("rope."))
    assert sum(array.size for array in merged.values()) == given


def test_without_tvm_it_says_what_to_do(
    versus_relax: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["versus_relax.py", "--tvm", "/nowhere/python", "--value-layers", "1"])
    monkeypatch.setattr(versus_relax, "SMOLLM2", replace(versus_relax.SMOLLM2, vocabulary=8))
    assert versus_relax.main() == 2
    assert "/nowhere/python does not exist: `make bench-relax` installs TVM" in capsys.readouterr().err
