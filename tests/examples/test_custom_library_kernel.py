"""The example of a user's own kernel."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_library_kernel.py"


def test_it_runs_and_agrees_with_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    mine, generated = re.findall(r"NumPy ([\d.e+-]+); kernels: (.*)", shown)
    assert "my_rms_norm" in mine[1].split(", ")
    assert "my_rms_norm" not in generated[1]
    assert float(mine[0]) < 1e-4
    assert float(generated[0]) < 1e-4
    assert "call_dps_library('my_rms_norm', x, @norm, eps=1e-05, symbols=(n))" in shown
