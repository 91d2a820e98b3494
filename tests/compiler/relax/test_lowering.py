"""Partial lowering: case L1 (fig. 17) of Relax, in dispatches instead of milliseconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from webrelax.compiler.frontend.export import Exported, export_decoder
from webrelax.compiler.frontend.llama import Llama
from webrelax.compiler.ir import CallFunction, CallTIR, Module, all_bindings
from webrelax.compiler.native.device import Pipeline
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.passes.dispatch_library import Entry
from webrelax.compiler.pipeline import compile, lower, passes
from webrelax.compiler.wgsl.library import LIBRARY

from ..ops.cases import Array
from .figure import check_lines, check_text, dispatches
from .llama import CONFIG, CONTEXT, Session, random_weights, reference_logits

FUSION, MERGING, CAPTURE = {"fuse_ops", "fuse_tir"}, {"merge_parallel"}, {"capture"}
# The routines, and the passes that are left out: each step has what the one before has, and more.
STEPS: dict[str, tuple[Sequence[Entry], Collection[str]]] = {
    "nothing": ((), FUSION | MERGING | CAPTURE),
    "+ fusion": ((), MERGING | CAPTURE),
    "+ library": (LIBRARY, MERGING | CAPTURE),
    "+ merging": (LIBRARY, CAPTURE),
}


def exported(layers: int = CONFIG.layers) -> Exported:
    return export_decoder(Llama(replace(CONFIG, layers=layers), CONTEXT), CONTEXT, 8)


@cache
def stages(step: str, layers: int = CONFIG.layers) -> dict[str, Module]:
    """The model after each pass of the step."""
    library, left_out = STEPS[step]
    return dict(lower(exported(layers).module, steps=[p for p in passes(library) if p.name not in left_out]))


def count(module: Module, name: str = "decode") -> int:
    return len(dispatches(module.functions[name]))


def test_l1_the_decode_step_of_a_layer() -> None:
    shown = {}
    for step in STEPS:
        module = stages(step, layers=1)["eliminate_dead_code"]
        shown[step] = replace(module, functions={"decode": module.functions["decode"]})
    check_text("l1_decode_of_a_layer", shown, programs=False)


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_l1_each_step_takes_fewer_dispatches(name: str) -> None:
    counts = [count(stages(step)["lower_shapes"], name) for step in STEPS]
    assert counts == sorted(set(counts), reverse=True)


def test_l1_the_share_of_operators_that_each_step_touched() -> None:
    """Of the operators of a decode step, that is of its dispatches without anything."""
    every = count(stages("nothing")["legalize"])
    # A layer has 24. Besides there are take, last_row, rms_norm and the logits.
    assert every == 2 * 24 + 4

    grouped = stages("+ fusion")["fuse_ops"]
    bindings = all_bindings(grouped.functions["decode"].body)
    groups = [b.value.callee.name for b in bindings if isinstance(b.value, CallFunction)]
    fused = sum(count(grouped, name) for name in groups)
    # reshape, rope; reshape, rope, append; reshape, append; reshape, linear, add; linear, silu, linear, multiply;
    # linear, add. Only last_row reads the last addition: add, last_row, rms_norm.
    assert fused == 2 * (2 + 3 + 2 + 3 + 4 + 2) - 2 + 3

    values = [b.value for b in all_bindings(stages("+ library")["legalize"].functions["decode"].body)]
    taken = every - sum(isinstance(value, CallTIR) for value in values)
    assert taken == 2 * 3  # scores, softmax, and the mix of values

    before, after = stages("+ library")["lower_shapes"], stages("+ merging")["lower_shapes"]
    kept = set(dispatches(before.functions["decode"]))
    merged = count(before) - sum(name in kept for name in dispatches(after.functions["decode"]))
    # Query, key and value; the rotation of the query and the append of the key, but not that of the value.
    assert merged == 2 * (3 + 2)

    shares = {"nothing": "", "+ fusion": f"{fused} of {every} operators", "+ library": f"{taken} of {every} operators"}
    shares["+ merging"] = f"{merged} of {count(before)} kernels"
    rows = [f"{step:<12}{count(stages(step)['lower_shapes']):>10}  {share}".rstrip() for step, share in shares.items()]
    check_lines("l1_steps", "\n".join(["decode      dispatches  touched", *rows, ""]))


@pytest.mark.parametrize("step", STEPS)
def test_l1_values_stay(step: str) -> None:
    """Prompts of 1, 2 and 7 tokens, then steps of decoding: at every step the logits of NumPy."""
    weights, state = random_weights(Llama(CONFIG, CONTEXT)), exported().state.values()
    for prompt in (1, 2, 7):
        session = Session(stages(step)["lower_shapes"], weights, state)
        tokens = some_tokens(prompt + 4)
        expected = reference_logits(CONFIG, weights, tokens)
        for past, end in ((0, prompt), *((at, at + 1) for at in range(prompt, len(tokens)))):
            name = "decode" if end - past == 1 else "prefill"
            logits = session.step(name, tokens[past:end], range(past, end), [0] * (end - past), past)
            np.testing.assert_allclose(logits[0], expected[end - 1], atol=1e-5)


def some_tokens(number: int) -> Array:
    return np.random.default_rng(number).integers(0, CONFIG.vocabulary, number).astype(np.int32)


class CountingRunner(Runner):
    """Counts how often it looks up the pipeline and the bind group of a dispatch."""

    looked_up = 0

    def _resolve(self, kernel: int, binding_set: int) -> tuple[Pipeline, Any]:
        self.looked_up += 1
        return super()._resolve(kernel, binding_set)


def test_l1_captured_dispatches_are_resolved_once() -> None:
    """Capturing leaves the dispatches as they are: what falls is how often pipelines and bind groups are looked up."""
    module = exported().module
    captured = dict(lower(module))["capture"]
    assert all(function.captured for function in captured.functions.values())
    weights = random_weights(Llama(CONFIG, CONTEXT))
    tokens = some_tokens(5)
    expected = reference_logits(CONFIG, weights, tokens)
    executable, every = compile(module), count(captured)
    for replay in (False, True):
        runner, looked_up = CountingRunner.of(executable, weights, replay=replay), []
        for at, token in enumerate(tokens):
            runner.looked_up = 0
            one = {"tokens": np.array([token]), "positions": np.array([at], np.int32)}
            results = runner.call("decode", {**one, "sequences": np.zeros(1, np.int32), "past": (at,)})
            np.testing.assert_allclose(next(iter(results.values()))[0], expected[at], atol=1e-4)
            looked_up.append(runner.looked_up)
            assert runner.dispatches == every
        assert looked_up == ([every, 0, 0, 0, 0] if replay else [every] * 5)
