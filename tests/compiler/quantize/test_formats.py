"""What the descriptors say, and where the sections of a packed weight lie."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend import SUPPORTED
from webrelax.compiler.quantize import FORMATS, SECTION_WORDS, packed_words, sections
from webrelax.compiler.quantize.formats import VALUE_BITS

from .blocks import GROUPED


def test_every_supported_type_is_a_format() -> None:
    assert set(SUPPORTED) == set(FORMATS)


def test_structures_are_all_different() -> None:
    """Or a kernel would have to know a name."""
    assert len({replace(format, name="") for format in FORMATS.values()}) == len(FORMATS)


@pytest.mark.parametrize("bits", range(1, 9))
def test_planes(bits: int) -> None:
    planes = replace(FORMATS["Q4_0"], bits=bits).planes
    assert sum(planes) == bits
    assert all(32 % width == 0 for width in planes)
    assert list(planes) == sorted(planes, reverse=True)


def test_planes_of_the_formats() -> None:
    split = {name: format.planes for name, format in FORMATS.items() if len(format.planes) > 1}
    assert split == {"Q5_0": (4, 1), "Q5_1": (4, 1), "Q3_K": (2, 1), "Q5_K": (4, 1), "Q6_K": (4, 2)}


def test_codebooks_have_a_signed_byte_for_each_code() -> None:
    books = {name: format.codebook for name, format in FORMATS.items() if format.codebook}
    assert set(books) == {"IQ4_NL", "IQ4_XS", "MXFP4"}
    for name, book in books.items():
        assert len(book) == 1 << FORMATS[name].bits
        assert all(-128 <= entry < 128 for entry in book)


def test_what_groups_store() -> None:
    assert {name for name, format in FORMATS.items() if format.has_minimum} == {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}
    for format in map(FORMATS.__getitem__, GROUPED):
        names = [what for what, _ in format.stores]
        assert names in (["scale"], ["scale", "minimum"])
        assert all(type in VALUE_BITS for _, type in (*format.stores, *format.super_stores))
        if format.super_group:
            assert [what for what, _ in format.super_stores] == names
            assert format.super_group % format.group == 0


def test_sizes() -> None:
    """Bits of an element, of large matrices."""
    sizes = {name: packed_words(format, 4096, 1024) * 32 / (4096 * 1024) for name, format in FORMATS.items()}
    assert sizes == {
        "F32": 32,
        "F16": 16,
        "BF16": 16,
        "Q8_0": 8.5,
        "Q4_0": 4.5,
        "Q4_1": 5,
        "Q5_0": 5.5,
        "Q5_1": 6,
        "IQ4_NL": 4.5,
        "MXFP4": 4.5,
        "Q2_K": 2.625,
        "Q3_K": 3.5625,
        "Q4_K": 4.625,
        "Q5_K": 5.625,
        "Q6_K": 6.5625,
        "IQ4_XS": 4.3125,
    }


def test_sections_are_aligned_and_in_bounds() -> None:
    assert sections(FORMATS["F16"], 3, 3) == (0,)
    assert sections(FORMATS["Q4_0"], 1, 32) == (0, SECTION_WORDS)
    assert packed_words(FORMATS["Q4_0"], 1, 32) == SECTION_WORDS + 1
    assert sections(FORMATS["Q8_0"], 49152, 576) == (0, 49152 * 576 // 4)
    assert packed_words(FORMATS["Q4_1"], 16, 32) == SECTION_WORDS + 16


def test_a_section_for_each_plane_and_each_level() -> None:
    assert sections(FORMATS["Q5_1"], 1, 32) == (0, SECTION_WORDS, 2 * SECTION_WORDS)
    # Of 3 x 256 elements: 96 words of low bits, 48 of high ones, 48 bytes of groups, 3 halves.
    assert sections(FORMATS["Q6_K"], 3, 256) == (0, 128, 192, 256)
    assert packed_words(FORMATS["Q6_K"], 3, 256) == 256 + 2


@pytest.mark.parametrize("name", GROUPED)
def test_columns_that_are_no_multiple_of_the_group(name: str) -> None:
    format = FORMATS[name]
    message = f"{name} stores groups of {format.row_unit}; a row of {format.row_unit + 8} elements is no multiple"
    with pytest.raises(WebrelaxError, match=message):
        sections(format, 4, format.row_unit + 8)


def test_empty() -> None:
    with pytest.raises(WebrelaxError, match="empty"):
        packed_words(FORMATS["F32"], 0, 4)
