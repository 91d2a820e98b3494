from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend import open_gguf
from webrelax.compiler.quantize import FORMATS, SECTION_WORDS, pack, packed_words, sections, unpack

GROUPED = ("Q4_0", "Q4_1", "Q8_0")


def random_blocks(name: str, rows: int, columns: int, seed: int) -> NDArray[np.uint8]:
    """Raw data of any bit pattern whose floats are finite: all codes, scales negative, subnormal and zero too."""
    rng = np.random.default_rng(seed)
    form = FORMATS[name]
    size = rows * columns
    if not form.group:
        raw = rng.integers(0, 256, size * form.bits // 8, np.uint8)
        if name == "F32":
            raw.view(np.uint32)[...] &= 0xBFFFFFFF
        else:
            raw.view(np.uint16)[...] &= 0xBFFF
        return raw
    value_bytes = 2 * len(form.stores)
    raw = rng.integers(0, 256, (size // form.group, value_bytes + form.group * form.bits // 8), np.uint8)
    halves = rng.integers(0, 1 << 16, (len(raw), len(form.stores)), np.uint16)
    exponent = rng.choice([0, 1, 15, 30], halves.shape).astype(np.uint16)
    halves = (halves & 0x83FF) | (exponent << 10)
    raw[:, :value_bytes] = halves.astype("<u2").view(np.uint8).reshape(len(raw), -1)
    return raw.reshape(-1)


def dequantized(name: str, raw: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.float32]:
    kind = gguf.GGMLQuantizationType[name]
    data = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    return np.asarray(gguf.dequantize(data, kind), np.float32).reshape(rows, columns)


def assert_same_bits(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert got.dtype == np.float32
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(FORMATS)), rows=st.integers(1, 5), blocks=st.integers(1, 7), seed=st.integers(0))
def test_round_trip_is_bit_identical_to_the_reference(name: str, rows: int, blocks: int, seed: int) -> None:
    form, columns = FORMATS[name], 32 * blocks
    raw = random_blocks(name, rows, columns, seed)
    packed = pack(form, raw.data, rows, columns)
    assert packed.dtype == np.uint32
    assert packed.shape == (packed_words(form, rows, columns),)
    assert_same_bits(unpack(form, packed, rows, columns), dequantized(name, raw, rows, columns))


@pytest.mark.parametrize(("name", "rows", "columns"), [("F32", 1, 7), ("F16", 1, 7), ("BF16", 3, 5), ("F16", 3, 3)])
def test_vectors_and_odd_columns(name: str, rows: int, columns: int) -> None:
    raw = random_blocks(name, rows, columns, 1)
    packed = pack(FORMATS[name], bytes(raw), rows, columns)
    assert packed.size == -(-rows * columns * FORMATS[name].bits // 32)
    assert_same_bits(unpack(FORMATS[name], packed, rows, columns), dequantized(name, raw, rows, columns))


@pytest.mark.parametrize("name", GROUPED)
def test_layout_read_word_by_word(name: str) -> None:
    """The layout that the module documents, written out for one element at a time."""
    form, rows, columns = FORMATS[name], 3, 96
    raw = random_blocks(name, rows, columns, 2)
    words = [int(word) for word in pack(form, raw.data, rows, columns)]
    codes, groups = sections(form, rows, columns)
    expected = dequantized(name, raw, rows, columns)
    per_word = 32 // form.bits
    for row in range(rows):
        for j in range(columns):
            word = words[codes + row * (columns // per_word) + j // per_word]
            code = word >> (j % per_word * form.bits) & ((1 << form.bits) - 1)
            if form.code == "signed" and code >= 1 << (form.bits - 1):
                code -= 1 << form.bits
            group = row * (columns // 32) + j // 32
            minimum = np.float32(0)
            if form.group_packing == "with_minimum":
                scale = half(words[groups + group] & 0xFFFF)
                minimum = half(words[groups + group] >> 16)
            else:
                scale = half(words[groups + group // 2] >> (16 * (group % 2)) & 0xFFFF)
            assert np.float32(code - form.zero) * scale + minimum == expected[row, j]


def half(bits: int) -> np.float32:
    return np.float32(np.uint16(bits).view(np.float16))


def test_descriptors() -> None:
    assert {name: (one.bits, one.zero, one.group, one.group_packing) for name, one in FORMATS.items()} == {
        "F32": (32, 0, 0, "none"),
        "F16": (16, 0, 0, "none"),
        "BF16": (16, 0, 0, "none"),
        "Q8_0": (8, 0, 32, "pair"),
        "Q4_0": (4, 8, 32, "pair"),
        "Q4_1": (4, 0, 32, "with_minimum"),
    }
    assert [name for name, one in FORMATS.items() if one.has_minimum] == ["Q4_1"]


def test_sections_are_aligned_and_in_bounds() -> None:
    assert sections(FORMATS["F16"], 3, 3) == (0,)
    assert sections(FORMATS["Q4_0"], 1, 32) == (0, SECTION_WORDS)
    assert packed_words(FORMATS["Q4_0"], 1, 32) == SECTION_WORDS + 1
    assert sections(FORMATS["Q8_0"], 49152, 576) == (0, 49152 * 576 // 4)
    assert packed_words(FORMATS["Q4_1"], 16, 32) == SECTION_WORDS + 16


def test_the_gap_between_sections_is_zero() -> None:
    packed = pack(FORMATS["Q4_1"], b"\xff" * 20, 1, 32)
    assert not packed[4:SECTION_WORDS].any()


@pytest.mark.parametrize("name", GROUPED)
def test_columns_that_are_no_multiple_of_the_group(name: str) -> None:
    with pytest.raises(WebrelaxError, match=f"{name} stores groups of 32; a row of 40 elements is no multiple"):
        pack(FORMATS[name], b"", 4, 40)


def test_wrong_sizes() -> None:
    with pytest.raises(WebrelaxError, match="Q4_0 data of 2 x 32 take 36 bytes; got 35"):
        pack(FORMATS["Q4_0"], bytes(35), 2, 32)
    with pytest.raises(WebrelaxError, match="packs to 65 words"):
        unpack(FORMATS["Q4_0"], np.zeros(64, np.uint32), 1, 32)
    with pytest.raises(WebrelaxError, match="empty"):
        packed_words(FORMATS["F32"], 0, 4)


def test_an_embedding_packs_quickly() -> None:
    rows, columns = 49152, 576
    raw = random_blocks("Q8_0", rows, columns, 3)
    begun = time.process_time()
    pack(FORMATS["Q8_0"], raw.data, rows, columns)
    assert time.process_time() - begun < 1


def test_every_tensor_of_the_real_model(smollm2_path: Path) -> None:
    for one in open_gguf(smollm2_path).tensors.values():
        rows, columns = one.shape if len(one.shape) == 2 else (1, *one.shape)
        packed = pack(FORMATS[one.type], one.bytes(), rows, columns)
        raw = np.frombuffer(one.bytes(), np.uint8)
        assert_same_bits(unpack(FORMATS[one.type], packed, rows, columns), dequantized(one.type, raw, rows, columns))
