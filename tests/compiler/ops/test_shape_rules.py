"""Each shape rule: exact, with little known, and refusing what does not fit in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, Object, Shape, Tensor
from webrelax.compiler.symbolic import Var

from .cases import CASES, f32, i32

N, M, K = Var("n"), Var("m"), Var("k")


def deduce(name: str, arguments: Sequence[Annotation], **attributes: Any) -> Annotation:
    return ops.OPERATORS[name].deduce(tuple(arguments), {"scale": 1.0, **attributes})


EXACT: list[tuple[str, Sequence[Annotation], dict[str, Any], Tensor]] = [
    ("add", (f32(N, 4), f32(4)), {}, f32(N, 4)),
    ("add", (f32(M, 1, 4), f32(N, 1)), {}, f32(M, N, 4)),
    ("add", (f32(N * 2 + 2), f32((N + 1) * 2)), {}, f32(N * 2 + 2)),
    ("silu", (f32(N, 4),), {}, f32(N, 4)),
    ("linear", (f32(N, M, 4), f32(K, 4)), {}, f32(N, M, K)),
    ("softmax", (f32(N, M),), {}, f32(N, M)),
    ("rms_norm", (f32(N, M), f32(M)), {"eps": 1e-5}, f32(N, M)),
    ("row_sum", (f32(N, M),), {}, f32(N)),
    ("reshape", (f32(N, 2, 2), Shape((N, 4))), {}, f32(N, 4)),
    ("flatten", (f32(N, 4),), {}, f32(N * 4)),
    ("transpose", (i32(N, M, 2),), {"axes": (2, 0, 1)}, i32(2, N, M)),
    ("take", (f32(100, M), i32(N)), {}, f32(N, M)),
    ("last_row", (f32(N, M),), {}, f32(1, M)),
    ("concat", (f32(N, 3), f32(M, 3)), {"axis": 0}, f32(N + M, 3)),
    ("rope", (f32(N, 2, 6), i32(N), f32(M, 3), f32(M, 3)), {"interleaved": True}, f32(N, 2, 6)),
    ("kv_append", (f32(1, 9, 2, 6), f32(N, 2, 6), i32(N), i32(N)), {}, f32(1, 9, 2, 6)),
    ("attention_scores", (f32(N, 4, 6), f32(1, 9, 2, 6), i32(N), i32(N), Shape((M + N,))), {}, f32(4, N, M + N)),
    ("attention_values", (f32(4, N, M), f32(1, 9, 2, 6), i32(N)), {}, f32(N, 4, 6)),
    ("attention", (f32(N, 4, 6), f32(1, 9, 2, 6), f32(1, 9, 2, 3), i32(N), i32(N), Shape((M + N,))), {}, f32(N, 4, 3)),
]


@pytest.mark.parametrize(("name", "arguments", "attributes", "result"), EXACT)
def test_exact(name: str, arguments: Sequence[Annotation], attributes: dict[str, Any], result: Tensor) -> None:
    assert deduce(name, arguments, **attributes) == result


def rank_only(annotation: Annotation) -> Annotation:
    if isinstance(annotation, Shape):
        return Shape(ndim=annotation.ndim)
    assert isinstance(annotation, Tensor)
    return Tensor(dtype=annotation.dtype, ndim=annotation.ndim)


@pytest.mark.parametrize(("name", "arguments", "attributes", "result"), EXACT)
def test_with_ranks_only(
    name: str, arguments: Sequence[Annotation], attributes: dict[str, Any], result: Tensor
) -> None:
    deduced = deduce(name, [rank_only(a) for a in arguments], **attributes)
    assert deduced == Tensor(dtype=result.dtype, ndim=result.ndim)


@pytest.mark.parametrize(("name", "arguments", "attributes", "result"), EXACT)
def test_with_nothing_known(
    name: str, arguments: Sequence[Annotation], attributes: dict[str, Any], result: Tensor
) -> None:
    unknown = [Shape() if isinstance(a, Shape) else Tensor() for a in arguments]
    deduced = deduce(name, unknown, **attributes)
    assert isinstance(deduced, Tensor)
    assert deduced.shape is None
    assert deduced.dtype in (None, result.dtype)
    assert deduced.ndim in (None, result.ndim)


COARSE: list[tuple[str, Sequence[Annotation], dict[str, Any], Tensor]] = [
    ("add", (f32(N), Tensor(dtype="f32")), {}, Tensor(dtype="f32")),
    ("add", (f32(N, 2), Tensor(ndim=1)), {}, Tensor(dtype="f32", ndim=2)),
    ("linear", (Tensor(ndim=3), f32(5, 4)), {}, Tensor(dtype="f32", ndim=3)),
    ("reshape", (Tensor(dtype="f32"), Shape((N, 4))), {}, f32(N, 4)),
    ("reshape", (f32(N, 4), Shape(ndim=3)), {}, Tensor(dtype="f32", ndim=3)),
    ("concat", (Tensor(), f32(N, 4)), {"axis": 1}, Tensor(dtype="f32", ndim=2)),
]


@pytest.mark.parametrize(("name", "arguments", "attributes", "result"), COARSE)
def test_partly_known(name: str, arguments: Sequence[Annotation], attributes: dict[str, Any], result: Tensor) -> None:
    assert deduce(name, arguments, **attributes) == result


KV = f32(1, 9, 2, 6)
WRONG: list[tuple[str, Sequence[Annotation], dict[str, Any], str]] = [
    ("add", (f32(2),), {}, "takes 2 arguments (x, y), not 1"),
    ("add", (f32(2), Shape((2,))), {}, "y must be a tensor, not Shape([2])"),
    ("add", (f32(2), i32(2)), {}, "element types f32 and i32 differ"),
    ("add", (f32(2), f32(3)), {}, "dimensions 2 and 3 are neither provably equal nor 1"),
    ("add", (f32(N), f32(M)), {}, "dimensions n and m are neither provably equal nor 1"),
    ("exp", (i32(2),), {}, "x must be f32, not i32"),
    ("linear", (f32(N, 3), f32(5, 4)), {}, "columns of x and weight: 3 and 4 are not provably equal"),
    ("linear", (f32(N, M), f32(5, K)), {}, "columns of x and weight: m and k are not provably equal"),
    ("linear", (f32(N, 4), f32(4)), {}, "weight must have 2 dimensions, not 1"),
    ("linear", (f32(), f32(4, 4)), {}, "x must have at least one dimension"),
    ("softmax", (f32(),), {}, "x must have at least one dimension"),
    ("softmax", (f32(2), f32(2)), {}, "takes 1 arguments (x), not 2"),
    ("rms_norm", (f32(2),), {"eps": 1e-5}, "takes 2 arguments (x, weight), not 1"),
    ("rms_norm", (f32(N, 3), f32(4)), {"eps": 1e-5}, "columns of x and weight: 3 and 4 are not provably equal"),
    ("row_sum", (i32(2),), {}, "x must be f32, not i32"),
    ("reshape", (f32(N, 4),), {}, "takes a tensor and a shape"),
    ("reshape", (f32(N, 4), Shape((N, 5))), {}, "numbers of elements of"),
    ("reshape", (f32(N), Shape((M,))), {}, "n and m are not provably equal"),
    ("transpose", (f32(N, 4),), {"axes": (0, 1, 2)}, "x must have 3 dimensions, not 2"),
    ("transpose", (f32(N, 4),), {"axes": (0, 0)}, "axes must be an order of all dimensions, not (0, 0)"),
    ("take", (f32(9, 4), f32(N)), {}, "ids must be i32, not f32"),
    ("take", (f32(9), i32(N)), {}, "table must have 2 dimensions, not 1"),
    ("last_row", (f32(0, 4),), {}, "x has no rows"),
    ("concat", (f32(N, 3), f32(N, 4)), {"axis": 0}, "dimension 1: 3 and 4 are not provably equal"),
    ("concat", (f32(N, 3), f32(N)), {"axis": 0}, "y must have 2 dimensions, not 1"),
    ("concat", (f32(N), f32(N)), {"axis": 1}, "there is no dimension 1 of 1"),
    ("concat", (f32(N), i32(N)), {"axis": 0}, "element types f32 and i32 differ"),
    ("rope", (f32(N, 2, 5), i32(N), f32(9, 2), f32(9, 2)), {}, "the head size must be an even number, not 5"),
    ("rope", (f32(N, 2, M), i32(N), f32(9, 2), f32(9, 2)), {}, "the head size must be an even number, not m"),
    ("rope", (f32(N, 2, 4), i32(M), f32(9, 2), f32(9, 2)), {}, "tokens and positions: m and n are not provably equal"),
    ("rope", (f32(N, 2, 4), i32(N), f32(9, 2), f32(9, 4)), {}, "columns of sines and pairs of a head: 4 and 2"),
    ("kv_append", (KV, f32(N, 3, 6), i32(N), i32(N)), {}, "heads of cache and new: 2 and 3"),
    ("kv_append", (KV, f32(N, 2, 5), i32(N), i32(N)), {}, "head sizes of cache and new: 6 and 5"),
    ("kv_append", (KV, f32(N, 2, 6), i32(N), i32(1)), {}, "tokens and sequences: 1 and n"),
    ("attention_scores", (f32(N, 4, 6), KV, i32(N), i32(N), f32(2)), {}, "the length must be a shape of one dimension"),
    (
        "attention_scores",
        (f32(N, 4, 5), KV, i32(N), i32(N), Shape((M,))),
        {},
        "head sizes of queries and keys: 5 and 6",
    ),
    ("attention_scores", (f32(N, 3, 6), KV, i32(N), i32(N), Shape((M,))), {}, "3 query heads cannot share 2 key heads"),
    ("attention_scores", (f32(N, 2, 6), KV, i32(N), i32(N), Shape((M,))), {"window": -1}, "cannot be negative"),
    (
        "attention",
        (f32(N, 2, 6), KV, f32(1, 8, 2, 6), i32(N), i32(N), Shape((M,))),
        {},
        "capacities of keys",
    ),
    ("attention", (f32(N, 2, 6), KV, KV, i32(N), i32(M), Shape((M,))), {}, "tokens and sequences: m and n"),
    ("attention_values", (f32(3, N, M), KV, i32(N)), {}, "3 query heads cannot share 2 key heads"),
    ("attention_values", (f32(4, N, M), KV, i32(M)), {}, "tokens and sequences: m and n"),
]


@pytest.mark.parametrize(("name", "arguments", "attributes", "message"), WRONG)
def test_wrong(name: str, arguments: Sequence[Annotation], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        deduce(name, arguments, **attributes)


@pytest.mark.parametrize("name", ops.OPERATORS)
def test_no_operator_takes_any_object_or_nothing(name: str) -> None:
    attributes: dict[str, Any] = {"axes": (0,), "axis": 0, "eps": 1e-5, "interleaved": False, "scale": 1.0}
    for arguments in ((), (Object(),) * 9, (Object(),)):
        with pytest.raises(ValueError, match=r"takes|must be"):
            deduce(name, arguments, **attributes)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.operator.lower])
def test_a_lowering_needs_shapes(name: str) -> None:
    case = CASES[name]
    assert case.operator.lower
    with pytest.raises(ValueError, match="is not known: match_cast it first"):
        case.operator.lower(tuple(map(rank_only, case.arguments)), case.attributes)
