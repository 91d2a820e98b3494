"""Quantizing f32 weights: exact where it can be, never worse than plain rounding, and honest about its error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.quantize import BlockFormat, packed_words, unpack
from webrelax.compiler.quantize.quantizers import QUANTIZERS, quantize, relative_error

Floats = NDArray[np.float32]
NAMES = list(QUANTIZERS)


def plain(format: BlockFormat, weights: Floats) -> Floats:
    """What rounding with the range of each group gives, with f16 values: the textbook quantizer."""
    groups = weights.reshape(-1, format.group)
    if format.has_minimum:
        top = 2**format.bits - 1
        low = groups.min(1, keepdims=True).astype(np.float16).astype(np.float32)
        scale = ((groups.max(1, keepdims=True) - low) / top).astype(np.float16).astype(np.float32)
        codes = np.clip(np.rint((groups - low) / np.where(scale, scale, 1)), 0, top)
        decoded: Floats = codes * scale + low
        return decoded.reshape(weights.shape)
    top = 2 ** (format.bits - 1) - 1
    scale = (np.abs(groups).max(1, keepdims=True) / top).astype(np.float16).astype(np.float32)
    decoded = np.clip(np.rint(groups / np.where(scale, scale, 1)), -top, top) * scale
    return decoded.reshape(weights.shape)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["normal", "uniform", "outliers", "one-sided"])
def test_errors_are_smaller_than_those_of_plain_rounding(name: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    weights = rng.normal(0, 0.02, (48, 96)).astype(np.float32)
    if kind == "uniform":
        weights = rng.uniform(-1, 1, (48, 96)).astype(np.float32)
    if kind == "outliers":
        weights[rng.random(weights.shape) < 0.02] *= 20
    if kind == "one-sided":
        weights = np.abs(weights) + np.float32(0.1)
    format = QUANTIZERS[name]
    found = quantize(format, weights)
    decoded = unpack(format, found.words, *weights.shape)
    assert found.words.shape == (packed_words(format, *weights.shape),)
    assert found.error == relative_error(weights, decoded)
    expected = np.linalg.norm(decoded - weights) / np.linalg.norm(weights)
    assert found.error == pytest.approx(expected, rel=1e-4)
    assert found.error <= relative_error(weights, plain(format, weights)) * 1.0001
    # Of normal weights 4 bits leave under a tenth, as known of such formats.
    limits = {"q8": 0.007, "q4": 0.085, "q4_symmetric": 0.1, "q3": 0.19}
    assert kind != "normal" or found.error < limits[name]


@pytest.mark.parametrize("name", NAMES)
def test_weights_on_the_grid_come_back(name: str) -> None:
    format = QUANTIZERS[name]
    rng = np.random.default_rng(0)
    count = 2**format.bits
    zero = 0 if format.has_minimum else (2 ** (format.bits - 1))
    codes = rng.integers(0, count, (20, 64))
    codes[:, ::32], codes[:, 1::32] = 0, count - 1  # each group spans the grid
    scales = np.float32(2.0) ** rng.integers(-10, 3, (20, 2)).repeat(32, 1)
    weights = ((codes - zero) * scales - (scales * 3 if format.has_minimum else 0)).astype(np.float32)
    np.testing.assert_array_equal(unpack(format, quantize(format, weights).words, 20, 64), weights)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-3])
def test_groups_of_one_value(name: str, value: float) -> None:
    format = QUANTIZERS[name]
    weights = np.full((2, 32), value, np.float32)
    found = quantize(format, weights)
    assert found.error < 1e-3
    np.testing.assert_allclose(unpack(format, found.words, 2, 32), weights, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=32, max_size=32))
def test_any_group_is_within_a_step(name: str, values: list[float]) -> None:
    format = QUANTIZERS[name]
    weights = np.array([values], np.float32)
    decoded = unpack(format, quantize(format, weights).words, 1, 32)
    step = (weights.max() - weights.min() if format.has_minimum else 2 * np.abs(weights).max()) / (2**format.bits - 1)
    # No group is worse than one whose elements are all a step off, and f16 has 11 bits.
    bound = step + np.abs(weights).max() * 2.0**-10 + 1e-6
    assert np.sqrt(np.mean((decoded.astype(np.float64) - weights) ** 2)) <= bound


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full((1, 32), np.nan), "a weight is not a finite number"),
        (np.full((1, 32), np.inf), "a weight is not a finite number"),
        (np.arange(33).reshape(1, 33), "rows of 33 weights do not divide into groups of 32"),
        (np.linspace(-1e9, 1e9, 32).reshape(1, 32), "a weight of 1e+09 is too large"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_quantized(name: str, weights: Floats, message: str) -> None:
    with pytest.raises(WebrelaxError) as caught:
        quantize(QUANTIZERS[name], weights.astype(np.float32))
    assert message in str(caught.value)
