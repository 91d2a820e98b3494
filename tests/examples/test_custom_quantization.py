"""The example of a user's own quantization."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.tir import Kind, classify
from webrelax.compiler.tir.interpreter import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_quantization.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_it_runs_and_agrees_with_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.startswith("Packed: 3.5 bits a weight;")
    assert "finds to be injective from its loops" in shown
    assert shown.count(": 1 kernel, fused_decode_linear,") == 2
    rules = re.findall(r"schedule rule: (\w+); for the built-in 4-bit format: (\w+)", shown)
    assert rules == [("dots", "dots"), ("gemm", "gemm")]
    differences = list(map(float, re.findall(r"difference to NumPy: ([\d.e+-]+)", shown)))
    assert len(differences) == 2
    # Sums of 512 products of ordinary size.
    assert max(differences) < 1e-3


def test_packing_is_what_decoding_undoes(example: dict[str, Any]) -> None:
    """Weights that are values of the codebook times a scale come back as they were, wherever they are decoded."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 8, (6, 4, 32))
    codes[..., 0] = 7  # the largest, so that the scale is found again
    scales = np.exp2(rng.integers(-6, 3, (6, 4, 1))).astype(np.float32)
    weight = (example["CODEBOOK"][codes] * scales).reshape(6, 128)
    packed = example["quantize"](weight)
    # Bit 0 of the first code is bit 0 of the first word, and so on: 7 is set in all three planes.
    assert packed["planes"].shape == (6, 4, 3)
    assert np.all(packed["planes"] & 1 == 1)
    expected = sum(int(code & 1) << k for k, code in enumerate(codes[0, 0]))
    assert packed["planes"][0, 0, 0] == expected
    np.testing.assert_array_equal(example["dequantize_in_numpy"](packed), weight)
    program = example["decode_program"](6, 128)
    (decoded,) = run(program, [packed[b.name] for b in program.inputs], {})
    np.testing.assert_array_equal(decoded, weight)


def test_the_nearest_value_is_taken(example: dict[str, Any]) -> None:
    weight = np.random.default_rng(2).standard_normal((4, 64)).astype(np.float32)
    decoded = example["dequantize_in_numpy"](example["quantize"](weight))
    scales = np.abs(weight.reshape(-1, 32)).max(1, keepdims=True).astype(np.float16).astype(np.float32)
    distance = np.abs(weight.reshape(-1, 32, 1) - (scales * example["CODEBOOK"])[:, None]).min(-1)
    np.testing.assert_allclose(np.abs(weight - decoded).reshape(-1, 32), distance, atol=1e-6)


def test_its_kind_is_that_of_a_rearrangement(example: dict[str, Any]) -> None:
    assert classify(example["decode_program"](8, 64)) == Kind.INJECTIVE
