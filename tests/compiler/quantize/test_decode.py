"""The decode programs give the values of `unpack`, bit for bit, for random blocks of each format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webrelax.compiler.ir import Annotation, Object, Tensor, verify
from webrelax.compiler.passes import legalize
from webrelax.compiler.quantize import FORMATS, decode_program, dequantize, pack, packed_words, unpack
from webrelax.compiler.tir import interpreter
from webrelax.compiler.tir.interpreter import run

from ..ops.cases import module_calling
from .blocks import dequantized, random_blocks


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 7), groups=st.integers(1, 5), seed=st.integers(0, 2**32 - 1), block=st.sampled_from([9, 2**23])
)
def test_random_blocks(name: str, rows: int, groups: int, seed: int, block: int) -> None:
    """Random words hold every code, and scales that are subnormal, infinite or not a number too."""
    format = FORMATS[name]
    columns = groups * (format.row_unit if format.group else 3)
    words = np.random.default_rng(seed).integers(0, 2**32, packed_words(format, rows, columns), dtype=np.uint32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "BLOCK", block)
        (decoded,) = run(decode_program(format, rows, columns), [words])
    with np.errstate(all="ignore"):
        expected = unpack(format, words, rows, columns)
    numbers = ~np.isnan(expected)
    assert (decoded.view(np.uint32) == expected.view(np.uint32))[numbers].all()
    assert np.isnan(decoded[~numbers]).all()


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_of_a_file(name: str) -> None:
    raw = random_blocks(name, 3, 512, 7)
    (decoded,) = run(decode_program(FORMATS[name], 3, 512), [pack(FORMATS[name], raw.data, 3, 512)])
    assert np.array_equal(decoded.view(np.uint32), dequantized(name, raw, 3, 512).view(np.uint32))


def test_the_operator() -> None:
    attributes = {"format": FORMATS["Q4_1"], "rows": 3, "columns": 64}
    words = packed_words(FORMATS["Q4_1"], 3, 64)
    for known in (Tensor((words,), "u32"), Tensor(dtype="u32", ndim=1), Tensor(), Object()):
        assert dequantize.deduce((known,), attributes) == Tensor((3, 64), "f32")
    module = legalize(module_calling(dequantize, [Tensor((words,), "u32")], attributes))
    verify(module)
    assert list(module.programs) == ["dequantize"]


@pytest.mark.parametrize("given", [(), (Tensor((5,), "u32"),), (Tensor(dtype="i32"),), (Tensor(), Tensor())])
def test_what_is_no_packed_weight(given: tuple[Annotation, ...]) -> None:
    attributes = {"format": FORMATS["Q8_0"], "rows": 3, "columns": 64}
    with pytest.raises(ValueError, match=r"a packed \[3, 64\] weight is Tensor\(\(67,\), \"u32\"\), not"):
        dequantize.deduce(given, attributes)
