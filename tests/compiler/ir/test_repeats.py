"""Finding the repeated layers of a function."""

from __future__ import annotations

import time
from typing import Any

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Constant, Function, FunctionBuilder, Tensor
from webrelax.compiler.ir.repeats import Repeat, find_repeat, repeat_of
from webrelax.compiler.ir.summary import FunctionSummary, summarize
from webrelax.compiler.passes import legalize

from ..ops.cases import f32, module_of


def stack(layers: int, special: int = -1) -> Function:
    """`layers` times a matmul, an activation and an addition of what was there before; one may differ."""
    b = FunctionBuilder("f")
    value: Any = b.op(ops.negate, b.param("x", f32(3, 8)))
    for layer in range(layers):
        y = b.op(ops.linear, value, Constant(f"layer{layer}.weight", Tensor((8, 8), "f32")))
        y = b.op(ops.negate if layer == special else ops.silu, y)
        value = b.op(ops.add, value, y)
    return b.finish(b.op(ops.relu, value))


def test_layers_are_found_by_what_they_do() -> None:
    assert find_repeat(stack(12).body) == Repeat(1, 3, 12)
    # From the addition of the first layer on: where a copy begins is a matter of taste.
    assert find_repeat(stack(12, special=0).body) == Repeat(3, 3, 11)
    assert find_repeat(stack(9, special=6).body) == Repeat(1, 3, 6)
    assert find_repeat(stack(1).body) is None
    assert list(Repeat(1, 3, 12).copy(2)) == [7, 8, 9]


def test_what_reads_something_else_is_no_copy() -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(8))
    values: list[Any] = [x]
    for at in range(6):
        # The first three read the parameter again, the others what came just before.
        values.append(b.op(ops.negate, x if at < 3 else values[-1]))
    repeat = find_repeat(b.finish(values[-1]).body)
    assert repeat is not None
    assert (repeat.period, repeat.count) == (1, 3)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("", None),
        ("abc", None),
        ("aa", Repeat(0, 1, 2)),
        ("xababab", Repeat(1, 2, 3)),
        ("aabaabaabz", Repeat(0, 3, 3)),
        ("abcabcab", Repeat(0, 3, 2)),
    ],
)
def test_the_repetition_that_covers_most(items: str, expected: Repeat | None) -> None:
    assert repeat_of(items) == expected


def test_a_long_function_takes_no_time() -> None:
    function = stack(400)
    began = time.perf_counter()
    assert find_repeat(function.body) == Repeat(1, 3, 400)
    assert time.perf_counter() - began < 3


def test_numbers_of_a_function() -> None:
    module = module_of(stack(2))
    row = 3 * 8 * 4
    assert summarize(module) == {"f": FunctionSummary(8, 0, 0, 0, 8 * row)}
    assert summarize(legalize(module)) == {"f": FunctionSummary(0, 8, 0, 0, 8 * row)}
