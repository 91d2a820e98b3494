"""WGSL text: names, literals, the table."""

from __future__ import annotations

import numpy as np
import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.native.device import run_kernel
from webrelax.compiler.schedule import schedule
from webrelax.compiler.symbolic import Var
from webrelax.compiler.tir import Cast, Index, Literal, ProgramBuilder
from webrelax.compiler.wgsl import emit
from webrelax.compiler.wgsl.expression import literal
from webrelax.compiler.wgsl.names import Names

N = Var("n", 1, 128)


@pytest.mark.parametrize("value", [0.1, 1e-5, 1 / 3, -3.4028234663852886e38, 1e-30, 16777217.0, 0.0, 2.5])
def test_f32_literals_are_exact(value: float) -> None:
    text = literal(value, "f32").strip("()")
    assert text.endswith("f")
    assert float(text[:-1]) == float(np.float32(value))
    b = ProgramBuilder("literal")
    program = b.finish(b.compute("y", (1,), lambda i: Literal(value, "f32")))
    (y,) = run_kernel(emit(schedule(program), {}, 1), (1, 1, 1), [np.zeros(1, np.float32)])
    assert y[0] == np.float32(value)


def test_integer_literals() -> None:
    assert literal(7, "u32") == "7u"
    assert literal(-7, "i32") == "(-7)"
    assert literal(-7.0, "f32") == "(-7.0f)"


def test_reserved_and_odd_names() -> None:
    names = Names()
    given = [names.of(n) for n in ("loop", "layers.0.w", "layers_0_w", "_x", "__y", "9z", "a__b", "main", "x")]
    assert len(set(given)) == len(given)
    assert given[-1] == "x"
    assert not any(g.startswith("_") or "__" in g or g in ("loop", "main") for g in given)


def test_kernels_with_reserved_names_compile() -> None:
    b = ProgramBuilder("loop")
    x, y = b.input("while", (4,), "f32"), b.input("v_while", (4,), "f32")
    program = b.finish(b.compute("return", (4,), lambda i: x[i] - y[i]))
    one = np.ones(4, np.float32)
    *_, z = run_kernel(emit(schedule(program), {}, 1), (1, 1, 1), [one * 3, one, one])
    np.testing.assert_array_equal(z, one * 2)


def test_symbols_come_from_their_slots() -> None:
    b = ProgramBuilder("fill")
    kernel = schedule(b.finish(b.compute("y", (N,), lambda i: Cast("f32", Index(N - i)))))
    source = emit(kernel, {N: 6}, 2)
    assert "let n = table[1].z;" in source.text
    (y,) = run_kernel(source, (1, 1, 1), [np.zeros(5, np.float32)], [0] * 6 + [5])
    np.testing.assert_array_equal(y, [5, 4, 3, 2, 1])
    with pytest.raises(WebrelaxError, match="symbol n has no slot"):
        emit(kernel, {N: 8}, 2)
    with pytest.raises(WebrelaxError, match="symbol n has no slot"):
        emit(kernel, {}, 2)


def test_the_table_is_bound_even_if_unused() -> None:
    b = ProgramBuilder("one")
    source = emit(schedule(b.finish(b.compute("y", (1,), lambda i: Literal(1.0, "f32")))), {}, 3)
    assert source.text.startswith("@group(0) @binding(0) var<uniform> table: array<vec4<i32>, 3>;")
    assert (source.entry, source.access, source.workgroup) == ("main", ("read_write",), (256, 1, 1))
