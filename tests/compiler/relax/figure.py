"""What the paper's cases share: a program's text at each stage, compared with golden text, and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from webrelax.compiler.ir import CallLibrary, CallTIR, Function, Module, all_bindings, print_module, verify
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.tir import Program

from ..golden import check_golden
from ..ops.cases import Array

LENGTHS = (1, 2, 7)


def check_text(case: str, stages: Mapping[str, Module], programs: bool = True) -> None:
    """The module at each stage, under the stage's title, is what golden/CASE.txt says.

    A program is shown at the first stage that has it, if at all.
    """
    shown: dict[str, Program] = {}
    parts = []
    for title, module in stages.items():
        verify(module)
        new = {name: p for name, p in module.programs.items() if programs and shown.get(name) != p}
        parts.append(f"# {title}\n\n{print_module(replace(module, programs=new))}")
        shown |= new
    check_lines(case, "\n\n".join(parts))


def check_lines(case: str, text: str) -> None:
    """The text is that of golden/CASE.txt."""
    check_golden(Path(__file__).parent / "golden" / f"{case}.txt", text)


def check_values(
    stages: Mapping[str, Module],
    name: str,
    args: Sequence[Any],
    expected: Any,
    weights: Mapping[str, Array] | None = None,
) -> None:
    """The function gives these values at every stage; `expected` is an array or a tuple of them."""
    for title, module in stages.items():
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        actual = Interpreter(module, weights).call(name, *given)
        for got, want in zip(as_tuple(actual), as_tuple(expected), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=title)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def dispatches(function: Function) -> list[str]:
    """The kernels that a call of the function runs, in order."""
    values = (binding.value for binding in all_bindings(function.body))
    return [
        value.routine if isinstance(value, CallLibrary) else value.program
        for value in values
        if isinstance(value, CallTIR | CallLibrary)
    ]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
