"""Each operator's tensor program against NumPy, and the important ones against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import Annotation, Shape, verify
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes import legalize
from webrelax.compiler.tir import interpreter

from .cases import CASES, Array, Case, f32, i32, module_calling, softmax

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (5, 4), (40, 39)]


def check(case: Case, n: int, m: int) -> None:
    module = legalize(case.module)
    verify(module)
    *arrays, past = case.inputs(n, m)
    expected = case.reference(*(a.copy() for a in arrays), n, m)
    actual = Interpreter(module).call("f", *arrays, past)
    assert actual.dtype.kind == expected.dtype.kind
    assert actual.dtype.itemsize == 4
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str, n: int, m: int) -> None:
    check(CASES[name], max(n, CASES[name].least), m)


@pytest.mark.parametrize("name", CASES)
def test_in_blocks_of_a_few_elements(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "BLOCK", 10)
    check(CASES[name], 7, 6)


def test_every_operator_has_a_case() -> None:
    assert {case.operator.name for case in CASES.values()} == set(ops.OPERATORS)
    assert all(name == operator.name for name, operator in ops.OPERATORS.items())


def test_kv_append_overwrites_its_argument_and_nothing_else() -> None:
    case = CASES["kv_append"]
    cache, new, positions, sequences, past = case.inputs(3, 0)
    before = cache.copy()
    result = Interpreter(case.module).call("f", cache, new, positions, sequences, past)
    assert np.shares_memory(result, cache)
    untouched = np.setdiff1d(np.arange(48), positions)
    assert (cache[0, untouched] == before[0, untouched]).all()
    assert (cache[0, positions] == new).all()


def run(operator: str, arrays: Sequence[Array], annotations: Sequence[Annotation], **attributes: Any) -> Array:
    """One operator call; `annotations` has the shapes too."""
    module = module_calling(ops.OPERATORS[operator], annotations, attributes)
    result: Array = Interpreter(module).call("f", *arrays, (0,))
    return result


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_softmax_and_rms_norm_against_torch() -> None:
    import torch

    x, w = random(5, 33) * 20, random(33, seed=1)
    np.testing.assert_allclose(run("softmax", [x], [f32(5, 33)]), torch.softmax(torch.tensor(x), -1), atol=1e-6)
    expected = torch.nn.functional.rms_norm(torch.tensor(x), (33,), torch.tensor(w), eps=1e-5)
    np.testing.assert_allclose(run("rms_norm", [x, w], [f32(5, 33), f32(33)], eps=1e-5), expected, rtol=1e-5)


def test_activations_against_torch() -> None:
    import torch

    x = random(999) * 30
    tensor = torch.tensor(x)
    for name, expected in (
        ("silu", torch.nn.functional.silu(tensor)),
        ("gelu_tanh", torch.nn.functional.gelu(tensor, approximate="tanh")),
        ("sigmoid", torch.sigmoid(tensor)),
    ):
        np.testing.assert_allclose(run(name, [x], [f32(999)]), expected, rtol=1e-5, atol=1e-6)


def test_rope_against_complex_numbers_in_torch() -> None:
    import torch

    x, positions = random(7, 3, 10), np.array([0, 5, 2, 9, 100, 3, 1], np.int32)
    angles = np.outer(np.arange(128), 10000.0 ** (-np.arange(5) / 5))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    pairs = torch.view_as_complex(torch.tensor(x).reshape(7, 3, 5, 2))
    turned = pairs * torch.polar(torch.ones(128, 5), torch.tensor(angles).float())[torch.tensor(positions)][:, None]
    expected = torch.view_as_real(turned).reshape(7, 3, 10)
    annotations = [f32(7, 3, 10), i32(7), f32(128, 5), f32(128, 5)]
    actual = run("rope", [x, positions, cos, sin], annotations, interleaved=True)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    # The other order of pairs is the same rotation of permuted elements.
    halves = np.concatenate([x[..., 0::2], x[..., 1::2]], -1)
    actual = run("rope", [halves, positions, cos, sin], annotations, interleaved=False)
    np.testing.assert_allclose(actual, np.concatenate([expected[..., 0::2], expected[..., 1::2]], -1), atol=1e-5)


def test_attention_against_torch() -> None:
    import torch

    n, past, heads, kv_heads, size = 5, 11, 6, 2, 8
    q, keys, values = (
        random(n, heads, size),
        random(1, 20, kv_heads, size, seed=1),
        random(1, 20, kv_heads, size, seed=2),
    )
    positions, sequences = np.arange(past, past + n, dtype=np.int32), np.zeros(n, np.int32)
    cache = f32(1, 20, kv_heads, size)
    given = [f32(n, heads, size), cache, i32(n), i32(n), Shape((past + n,))]
    scores = run("attention_scores", [q, keys, positions, sequences], given, scale=size**-0.5)
    given = [f32(heads, n, past + n), cache, i32(n)]
    actual = run("attention_values", [softmax(scores), values, sequences], given)

    def batch(x: Array) -> torch.Tensor:
        return torch.tensor(x).transpose(0, 1)[None]

    mask = torch.ones(n, past + n).tril(past).bool()
    expected = torch.nn.functional.scaled_dot_product_attention(
        batch(q), batch(keys[0, : past + n]), batch(values[0, : past + n]), mask, enable_gqa=True
    )
    np.testing.assert_allclose(actual, expected[0].transpose(0, 1), atol=1e-5)


def test_attention_of_two_sequences_in_one_batch() -> None:
    """Which rows belong to which sequence is data: a batch gives what each sequence gives alone."""
    q, keys, values = random(4, 2, 4), random(2, 9, 1, 4, seed=1), random(2, 9, 1, 4, seed=2)
    positions, sequences = np.array([3, 5, 0, 8], np.int32), np.array([1, 0, 1, 0], np.int32)

    def attend(rows: list[int], who: Array) -> Array:
        n, store = len(rows), (2, 9, 1, 4)
        given = [f32(n, 2, 4), f32(*store), i32(n), i32(n), Shape((9,))]
        scores = run("attention_scores", [q[rows], keys, positions[rows], who], given, scale=1.0)
        return run("attention_values", [softmax(scores), values, who], [f32(2, n, 9), f32(*store), i32(n)])

    together = attend([0, 1, 2, 3], sequences)
    for row in range(4):
        np.testing.assert_allclose(attend([row], sequences[[row]])[0], together[row], atol=1e-6)
