"""The comparison of a quantization of one's own with the built-in one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import load


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    sys.path.append(str(Path(__file__).parents[2]))  # for examples/
    yield load("custom_quantization")
    sys.path.pop()


@pytest.mark.parametrize(("tokens", "rule"), [(1, "dots"), (128, "gemm")])
def test_both_formats_are_one_kernel_by_one_rule(bench: ModuleType, tokens: int, rule: str) -> None:
    row = bench.compare(tokens, 64, 128, seconds=0)
    assert (row.tokens, row.rows, row.columns, row.rule) == (tokens, 64, 128, rule)
    assert row.wgsl[0] != row.wgsl[1]
    assert min(row.built_in, row.custom, row.ratio) > 0


@pytest.mark.parametrize(("slowest", "code"), [(1.5, 0), (1.51, 1)])
def test_the_slowest_product_decides(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slowest: float, code: int
) -> None:
    def compare(tokens: int, rows: int, columns: int, seconds: float) -> Any:
        ratio = slowest if (tokens, rows) == (128, 576) else 0.9
        return bench.Row(tokens, rows, columns, "rule", (1, 2), 1.0, ratio, ratio)

    monkeypatch.setattr(bench, "compare", compare)
    assert bench.main(["--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["worst"] == slowest
    assert sorted(row["ratio"] for row in found["rows"]) == [0.9] * 5 + [slowest]
    assert bench.main([]) == code
    assert ("met" if code == 0 else "missed") in capsys.readouterr().out
