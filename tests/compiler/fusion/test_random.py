"""Random graphs compute the same before and after each pass of fusion, and stay well-formed."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler.fusion.explain import explain
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes import legalize
from webrelax.compiler.pipeline import PASSES, lower
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.tir import Program

from ..passes import random_programs
from .lowered import assert_same, flat
from .random_graphs import KINDS, Graph

SETTINGS = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TIGHT = replace(WEBGPU, storage_buffers=5)
FUSION = ("fuse_ops", "fuse_tir", "merge_parallel", "eliminate_dead_code")


def computed_again(program: Program) -> list[str]:
    """The reductions of a program that an element reads elsewhere than in its own row."""
    reduced = {name for stage in program.stages if stage.reducer for name in stage.outputs}
    found = []
    for stage in program.stages:
        point = tuple(axis.var for axis in stage.spatial)
        loads = [load for load in stage.loads() if load.buffer in reduced]
        found += [load.buffer for load in loads if load.indices != point[: len(load.indices)]]
    return found


@SETTINGS
@given(st.data(), st.integers(1, 16), st.integers(1, 3), st.sampled_from([1, 2, 5]), st.sampled_from([1, 4]))
def test_fusion_keeps_the_values(draw: st.DataObject, operators: int, results: int, n: int, m: int) -> None:
    graph = Graph(lambda choices: draw.draw(st.sampled_from(choices)))
    for _ in range(operators):
        graph.grow()
    values = [*graph.values, *graph.states]
    module = graph.module([values[-1], *(graph.pick(values) for _ in range(results - 1))])
    target = graph.pick([WEBGPU, TIGHT])
    modules = dict(lower(module, target))
    for program in modules["eliminate_dead_code"].programs.values():
        assert not computed_again(program)
        assert len(program.inputs) + len(program.outputs) - len(program.in_place) <= target.storage_buffers
    assert_same(list(modules.values()), graph.arguments(n, m), graph.weights)


@SETTINGS
@given(random_programs.modules(), st.integers(1, 5), st.integers(0, 5), st.integers(0, 1))
def test_fusion_with_choices_calls_and_tuples(program: random_programs.Random, n: int, m: int, flag: int) -> None:
    """Writes in place in arms and in functions that are called; arguments of lengths that a cast names."""
    modules = [module for _, module in lower(program.module, steps=[p for p in PASSES if p.name in FUSION])]
    given, *others = (random_programs.arguments(n, m, 2, flag) for _ in modules)
    expected = flat(Interpreter(modules[0]).call("main", *given))
    for module, args in zip(modules[1:], others, strict=True):
        actual = flat(Interpreter(module).call("main", *args))
        for one, other in zip([*actual, *args], [*expected, *given], strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_graphs_reach_every_decision() -> None:
    """What the property is worth: all operators, all reasons not to fuse, and all ways to."""
    used, reasons, groups = set[str](), "", set[tuple[str, ...]]()
    for seed in range(300):
        chance = random.Random(seed)
        graph = Graph(chance.choice)
        for _ in range(16):
            graph.grow()
        used |= graph.used
        explanation = explain(legalize(graph.module([graph.values[-1]])), chance.choice([WEBGPU, TIGHT]))["f"]
        reasons += "\n".join(explanation.reasons.values())
        groups |= {tuple(explanation.kinds[name] for name in group) for group in explanation.groups}
    assert used == set(KINDS)
    for part in (
        "in-place write", "buffers, 5 are allowed", "be repeated", "overwrites its memory", "as an index", "both are",
        "is injective: only", "at other indices", "evaluated again", "has another shape", "it is opaque",
        "leaves the function", "kernels read its result", "reads its result",
    ):  # fmt: skip
        assert part in reasons, part
    pairs = {pair for group in groups for pair in pairwise(group)}
    moves = {("elementwise", kind) for kind in ("elementwise", "injective", "reduction", "output fusible", "opaque")}
    moves |= {("injective", kind) for kind in ("elementwise", "injective", "reduction", "output fusible", "opaque")}
    moves |= {(kind, "elementwise") for kind in ("reduction", "output fusible")}
    assert pairs >= moves | {("output fusible", "broadcast")}
    assert any(group.count("output fusible") > 1 for group in groups)
