"""Memory planning: cases M1 (fig. 10) and M2 (table 2) of Relax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.frontend.llama import Llama
from webrelax.compiler.ir import Function, FunctionBuilder, Module, all_bindings
from webrelax.compiler.passes import legalize, plan_memory
from webrelax.compiler.passes.dispatch_library import Entry
from webrelax.compiler.pipeline import lower, passes
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.wgsl.library import LIBRARY

from ...bench.conftest import load
from ..ops.cases import f32, module_of
from .figure import LENGTHS, check_text, check_values, normal
from .llama import CONFIG, Session, random_weights, reference_logits


@pytest.mark.parametrize(("n", "title"), [(Var("n", 1, 64), "bound_known"), (Var("n", 1), "bound_unknown")])
def test_m1_two_storages_serve_four_tensors(n: Var, title: str) -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(2, n))
    lv0 = b.op(ops.exp_of, x, hint="lv0")
    lv1 = b.op(ops.transpose, lv0, axes=(1, 0), hint="lv1")
    lv2 = b.op(ops.relu, lv1, hint="lv2")
    lv3 = b.op(ops.transpose, lv2, axes=(1, 0), hint="lv3")
    # What a function returns has a storage of its own: the sum keeps the fourth tensor inside.
    written = module_of(b.finish(b.op(ops.row_sum, lv3, hint="lv4")))
    legalized = legalize(written)
    planned = plan_memory(legalized, WEBGPU)
    stages = {"as written": written, "after legalize": legalized, "after plan_memory": planned}
    check_text(f"m1_{title}", stages, programs=False)
    places = {b.name.name: b.places for b in all_bindings(planned.functions["f"].body)}
    first, second, third, fourth = (places[f"lv{at}"] for at in range(4))
    assert first == third
    assert second == fourth
    assert {place.storage for place in (*first, *second)} == set(planned.storages)
    assert len(planned.storages) == 2
    for length in (*LENGTHS, 64):
        a = normal(2, length)
        check_values(stages, "f", [a], np.exp(a).sum(1))


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load("memory")


def test_m2_the_pool_that_planning_is_compared_with_reuses_blocks_of_the_same_size(bench: ModuleType) -> None:
    n = Var("n", 1)
    b = FunctionBuilder("f")
    x = b.param("x", f32(2, n))
    first = b.op(ops.transpose, b.op(ops.exp_of, x), axes=(1, 0))
    second = b.op(ops.transpose, b.op(ops.relu, first), axes=(1, 0))
    module = legalize(module_of(b.finish(b.op(ops.row_sum, second))))
    # Two blocks of 8 n bytes; the result's 8 fit a block of the run with n = 1, before it or in it.
    for lengths, expected in (((1,), 16), ((1, 2), 48), ((2, 1, 1), 48), ((2, 3), 32 + 8 + 48)):
        assert bench.pool_bytes(module, module.functions["f"], [{n: length} for length in lengths]) == expected


@pytest.mark.parametrize("library", [LIBRARY, ()], ids=["library", "generated"])
@pytest.mark.parametrize("config", ["SMOLLM2_135M", "LLAMA3_8B"])
def test_m2_planning_saves_what_the_paper_says(bench: ModuleType, config: str, library: Sequence[Entry]) -> None:
    steps = passes(library)
    before = steps[: [step.name for step in steps].index("plan_memory")]
    # Layers are alike: nothing depends on their number.
    prefill, decode = bench.measure(replace(getattr(bench, config), layers=3), config, before)
    assert prefill.reduction >= 0.22
    assert decode.reduction >= 0.40
    for row in (prefill, decode):
        assert row.peak <= row.planned < min(row.baseline, row.unplanned)
        # Scores in memory are larger than anything while the logits live, which a function's result does not share.
        assert row.planned <= 1.25 * row.peak or not library


def around_planning(function: Function) -> dict[str, Module]:
    """The function before and after its memory is planned."""
    stages = dict(lower(module_of(function)))
    return {"before plan_memory": stages["eliminate_dead_code"], "after plan_memory": stages["plan_memory"]}


def test_m2_the_plan_of_a_layer(bench: ModuleType) -> None:
    """One layer of SmolLM2: many tensors, a few storages."""
    model = Llama(replace(bench.SMOLLM2_135M, layers=1), bench.CONTEXT)
    function = bench.trace(model, "decode", Var("b", 1, 64), Var("m", 0, bench.CONTEXT - 1), 64, False)
    stages = around_planning(function)
    check_text("m2_decode_of_a_layer", stages, programs=False)
    planned = stages["after plan_memory"]
    placed = [place for b in all_bindings(planned.functions["decode"].body) for place in b.places]
    assert sum(place.storage in planned.storages for place in placed) >= 3 * len(planned.storages)


@pytest.mark.parametrize("sequences", LENGTHS)
def test_m2_a_planned_model_computes_the_same(bench: ModuleType, sequences: int) -> None:
    model = Llama(CONFIG, bench.CONTEXT)
    weights = random_weights(model)
    most = max(bench.DECODE)
    function = bench.trace(model, "decode", Var("b", 1, most), Var("m", 0, bench.CONTEXT - 1), most, False)
    state = [(most, *shape[1:]) for shape in model.cache_shapes(bench.CONTEXT).values()]
    tokens = np.random.default_rng(sequences).integers(0, CONFIG.vocabulary, (sequences, 3))
    expected = np.stack([reference_logits(CONFIG, weights, each) for each in tokens])
    for module in around_planning(function).values():
        session = Session(module, weights, state)
        for at in range(3):
            logits = session.step("decode", tokens[:, at], [at] * sequences, range(sequences), at)
            np.testing.assert_allclose(logits, expected[:, at], atol=1e-5)
