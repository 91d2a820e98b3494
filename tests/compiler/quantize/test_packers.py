from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend import open_gguf
from webrelax.compiler.quantize import FORMATS, SECTION_WORDS, pack, packed_words, packers, sections, unpack
from webrelax.compiler.quantize.formats import VALUE_BITS, stored_bits

from .blocks import GROUPED, MOST_EXPONENT, dequantized, random_blocks, raw_bytes


def assert_same_bits(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert got.dtype == np.float32
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 5), blocks=st.integers(1, 7), seed=st.integers(0, 2**32 - 1), chunk=st.sampled_from([300, 1024])
)
def test_round_trip_is_bit_identical_to_the_reference(name: str, rows: int, blocks: int, seed: int, chunk: int) -> None:
    form = FORMATS[name]
    columns = max(32, form.row_unit) * blocks
    raw = random_blocks(name, rows, columns, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packers, "_CHUNK", chunk)
        packed = pack(form, raw.data, rows, columns)
    assert packed.dtype == np.uint32
    assert packed.shape == (packed_words(form, rows, columns),)
    assert_same_bits(unpack(form, packed, rows, columns), dequantized(name, raw, rows, columns))


def test_every_scale_that_is_a_power_of_two() -> None:
    raw = random_blocks("MXFP4", MOST_EXPONENT, 32, 1)
    raw[::17] = np.arange(MOST_EXPONENT)
    packed = pack(FORMATS["MXFP4"], raw.data, MOST_EXPONENT, 32)
    unpacked = unpack(FORMATS["MXFP4"], packed, MOST_EXPONENT, 32)
    assert_same_bits(unpacked, dequantized("MXFP4", raw, MOST_EXPONENT, 32))


@pytest.mark.parametrize(("name", "rows", "columns"), [("F32", 1, 7), ("F16", 1, 7), ("BF16", 3, 5), ("F16", 3, 3)])
def test_vectors_and_odd_columns(name: str, rows: int, columns: int) -> None:
    raw = random_blocks(name, rows, columns, 1)
    packed = pack(FORMATS[name], bytes(raw), rows, columns)
    assert packed.size == -(-rows * columns * FORMATS[name].bits // 32)
    assert_same_bits(unpack(FORMATS[name], packed, rows, columns), dequantized(name, raw, rows, columns))


def field(words: list[int], start: int, number: int, bits: int) -> int:
    each = 32 // bits
    return words[start + number // each] >> (number % each * bits) & ((1 << bits) - 1)


def signed(bits: int, code: int) -> int:
    return code - (1 << bits) if code >> (bits - 1) else code


def stored(stores: tuple[tuple[str, str], ...], words: list[int], start: int, group: int) -> dict[str, np.float32]:
    together, values = field(words, start, group, stored_bits(stores)), {}
    for what, type in stores:
        size = VALUE_BITS[type]
        bits = together & ((1 << size) - 1)
        as_float: dict[str, Any] = {
            "f16": lambda bits=bits: np.uint16(bits).view(np.float16),
            "bf16": lambda bits=bits: np.uint32(bits << 16).view(np.float32),
            "i8": lambda bits=bits: signed(8, bits),
        }
        values[what] = np.float32(as_float[type]() if type in as_float else bits)
        together >>= size
    return values


@pytest.mark.parametrize("name", GROUPED)
def test_layout_read_word_by_word(name: str) -> None:
    """The layout that `formats` documents, written out for one element at a time."""
    form, rows = FORMATS[name], 3
    columns = form.row_unit * (3 if form.row_unit == 32 else 1)
    raw = random_blocks(name, rows, columns, 2)
    words = [int(word) for word in pack(form, raw.data, rows, columns)]
    starts = sections(form, rows, columns)
    expected = dequantized(name, raw, rows, columns).reshape(-1)
    for at in range(rows * columns):
        code, shift = 0, 0
        for start, width in zip(starts, form.planes, strict=False):
            code |= field(words, start, at, width) << shift
            shift += width
        number = form.codebook[code] if form.codebook else code - form.zero
        if form.code == "signed":
            number = signed(form.bits, code)
        values = stored(form.stores, words, starts[len(form.planes)], at // form.group)
        scale, minimum = values["scale"], values.get("minimum", np.float32(0))
        if form.super_group:
            above = stored(form.super_stores, words, starts[-1], at // form.super_group)
            scale, minimum = above["scale"] * scale, -(above.get("minimum", np.float32(0)) * minimum)
        assert np.float32(number) * scale + minimum == expected[at]


def test_the_gap_between_sections_is_zero() -> None:
    packed = pack(FORMATS["Q4_1"], b"\xff" * 20, 1, 32)
    assert not packed[4:SECTION_WORDS].any()
    packed = pack(FORMATS["Q6_K"], b"\xff" * 210, 1, 256)
    ends = [32, 16, 4, 1]
    for start, used in zip(sections(FORMATS["Q6_K"], 1, 256), ends, strict=True):
        assert packed[start : start + used].all()
        assert not packed[start + used : start + SECTION_WORDS].any()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("change", [-1, 1])
def test_damaged_sizes(name: str, change: int) -> None:
    form, columns = FORMATS[name], 256
    size = raw_bytes(name, 2, columns)
    with pytest.raises(WebrelaxError, match=f"^{name} data of 2 x 256 take {size} bytes; got {size + change}$"):
        pack(form, bytes(size + change), 2, columns)
    words = packed_words(form, 2, columns)
    with pytest.raises(WebrelaxError, match=f"^{name} of 2 x 256 packs to {words} words; got shape"):
        unpack(form, np.zeros(words + change, np.uint32), 2, columns)


@pytest.mark.parametrize("name", ["Q8_0", "Q5_0", "IQ4_NL", "Q6_K"])
def test_an_embedding_packs_quickly(name: str) -> None:
    rows, columns = 49152, 768
    raw = np.ones(raw_bytes(name, rows, columns), np.uint8)
    begun = time.process_time()
    pack(FORMATS[name], raw.data, rows, columns)
    assert time.process_time() - begun < 2


def test_every_tensor_of_the_real_model(smollm2_path: Path) -> None:
    for one in open_gguf(smollm2_path).tensors.values():
        rows, columns = one.shape if len(one.shape) == 2 else (1, *one.shape)
        packed = pack(FORMATS[one.type], one.bytes(), rows, columns)
        raw = np.frombuffer(one.bytes(), np.uint8)
        assert_same_bits(unpack(FORMATS[one.type], packed, rows, columns), dequantized(one.type, raw, rows, columns))
