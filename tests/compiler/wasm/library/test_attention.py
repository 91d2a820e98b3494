"""Attention on the CPU, against NumPy: the cases of the GPU's routines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from webrelax.compiler.ir import ModuleBuilder
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.target import WASM
from webrelax.compiler.wasm.library import LIBRARY

from ...wgsl.library.attention_cases import Attention
from ...wgsl.library.test_attention import VARIANTS

# More heads share a key head than a tile of queries has.
CASES = {**VARIANTS, "ratio_20": Attention(heads=20, kv_heads=1, size=32), "size_20": Attention(size=20)}


@cache
def runner() -> Runner:
    """All cases as functions of one module: of n tokens, and of one."""
    module = ModuleBuilder()
    for name, case in CASES.items():
        module.add_function(replace(case.module().functions["f"], name=name))
        module.add_function(replace(replace(case, tokens=1).module().functions["f"], name=f"{name}_one"))
    executable = compile(module.finish(), WASM, LIBRARY)
    assert {kernel.source.name for kernel in executable.kernels} == {"attention_tile"}
    return Runner.of(executable)


@pytest.fixture(scope="module", autouse=True)
def _free() -> Iterator[None]:
    """wasmtime complains of what lives until the interpreter ends."""
    yield
    runner.cache_clear()


def check(name: str, case: Attention, past: int, tokens: int) -> None:
    inputs = case.inputs(past, tokens)
    (actual,) = runner().call(name, inputs).values()
    np.testing.assert_allclose(actual, case.expected(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("past", "tokens"), [(0, 1), (0, 2), (62, 63), (0, 64), (127, 65), (392, 128)])
@pytest.mark.parametrize("name", CASES)
def test_many_tokens(name: str, past: int, tokens: int) -> None:
    check(name, CASES[name], past, tokens)


@pytest.mark.parametrize("past", [0, 1, 63, 64, 255, 519])
@pytest.mark.parametrize("name", CASES)
def test_one_token(name: str, past: int) -> None:
    check(f"{name}_one", replace(CASES[name], tokens=1), past, 1)
