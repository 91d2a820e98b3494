"""The attention routines on the native device, against NumPy and against the programs that they name as reference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from webrelax.compiler.executable import Executable
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.pipeline import compile
from webrelax.compiler.wgsl.library import LIBRARY

from .attention_cases import Attention, kernel_names, run

PREFILL, DECODE = ["attention_prefill"], ["attention_partial", "attention_combine"]
MOST_BYTES = 8192

VARIANTS = {
    "one_head": Attention(heads=1, kv_heads=1, size=32),
    "ratio_1": Attention(heads=3, kv_heads=3),
    "ratio_3": Attention(heads=9, kv_heads=3),
    "ratio_4": Attention(heads=8, kv_heads=2, size=128),
    "ratio_7": Attention(heads=14, kv_heads=2),
    "ratio_8": Attention(heads=8, kv_heads=1, size=32),
    "size_16": Attention(size=16),
    "size_80": Attention(size=80),
    "size_100": Attention(size=100),
    "size_256": Attention(heads=3, kv_heads=1, size=256),
    "window": Attention(heads=6, window=30),
    "window_of_one": Attention(window=1),
    "softcap": Attention(softcap=3.0),
    "window_and_softcap": Attention(heads=14, size=256, window=70, softcap=5.0),
    "sequences": Attention(heads=9, kv_heads=3, sequences=3),
}


@cache
def compiled(case: Attention) -> Executable:
    return compile(case.module())


def check(case: Attention, past: int, tokens: int) -> None:
    inputs = case.inputs(past, tokens)
    actual = run(compiled(case), inputs)
    np.testing.assert_allclose(actual, case.expected(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("past", "tokens"), [(0, 1), (0, 2), (62, 63), (0, 64), (127, 65), (392, 128)])
@pytest.mark.parametrize("name", VARIANTS)
def test_prefill(name: str, past: int, tokens: int) -> None:
    assert kernel_names(compiled(VARIANTS[name])) == PREFILL
    check(VARIANTS[name], past, tokens)


@pytest.mark.parametrize("past", [0, 1, 63, 255, 256, 519])
@pytest.mark.parametrize("name", VARIANTS)
def test_decode(name: str, past: int) -> None:
    case = replace(VARIANTS[name], tokens=1)
    assert kernel_names(compiled(case)) == DECODE
    check(case, past, 1)


@pytest.mark.parametrize("tokens", [None, 1])
def test_every_length(tokens: int | None) -> None:
    case = Attention(tokens, heads=6, size=32, capacity=300, window=40)
    for length in (*range(1, 72), *range(126, 131), *range(250, 262), 299, 300):
        check(case, length - 1, 1)


def test_a_few_queries_of_fixed_number() -> None:
    case = Attention(5)
    assert kernel_names(compiled(case)) == PREFILL
    check(case, 60, 5)


@pytest.mark.parametrize("tokens", [None, 1])
@pytest.mark.parametrize("scale", [0.0, 1e2, 1e12])
def test_scores_of_any_size(tokens: int | None, scale: float) -> None:
    case = Attention(tokens, window=150)
    inputs = case.inputs(180, tokens or 20)
    inputs["queries"] *= np.float32(scale)
    actual = run(compiled(case), inputs)
    # A single key has all the weight where scores are this large: the rounding of f32 does not matter.
    np.testing.assert_allclose(actual, case.expected(inputs), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["ratio_3", "window_and_softcap", "sequences"])
@pytest.mark.parametrize("tokens", [None, 1])
def test_the_interpreter_runs_the_reference_programs(name: str, tokens: int | None) -> None:
    case = replace(VARIANTS[name], tokens=tokens)
    module = compiled(case).module
    assert len(module.programs) == len(DECODE if tokens else PREFILL)
    for past in (0, 130):
        inputs = case.inputs(past, tokens or 9)
        actual = Interpreter(module).call("f", *inputs.values())
        np.testing.assert_allclose(actual, case.expected(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_kernels_are_small(name: str) -> None:
    for case in (VARIANTS[name], replace(VARIANTS[name], tokens=1)):
        for kernel in compiled(case).kernels:
            assert len(kernel.source.text) <= MOST_BYTES
            assert all(word not in kernel.source.text for word in ("inf", "nan"))


def test_prefill_never_holds_scores() -> None:
    case = Attention(capacity=2048)
    assert compiled(case).bytes_of("storage") == 0
    assert compile(case.module(), library=()).bytes_of("storage") >= 4 * 128 * 2048 * 4


def test_the_parts_of_a_split_are_planned_like_any_tensor() -> None:
    """Relax, W1: the workspace is at graph level, as large as the bound of the length asks for."""
    case = Attention(1, heads=9, kv_heads=3, capacity=2048)
    executable = compiled(case)
    parts = 2048 // 256
    places = [b.places for b in executable.module.functions["f"].body.bindings if b.places]
    sizes = [parts * 9 * 4, parts * 9 * 64 * 4]
    assert [place.size for place in places[0]] == sizes
    assert executable.bytes_of("storage") >= sum(sizes)


@pytest.mark.parametrize("case", [Attention(size=30), Attention(size=260), Attention(1, size=2)])
def test_heads_that_do_not_fit_get_generated_kernels(case: Attention) -> None:
    names = kernel_names(compiled(case))
    assert not set(names) & {routine.name for entry in LIBRARY for routine in entry.routines}
    check(case, 33, case.tokens or 40)
