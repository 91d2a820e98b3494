"""Pattern kinds, from the loops alone (RELAX.md, case P1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from webrelax.compiler.fusion.merge import Part, merge
from webrelax.compiler.quantize import FORMATS, decode_program
from webrelax.compiler.symbolic import Expr, Var, maximum, minimum, substitute
from webrelax.compiler.tir import (
    MAX,
    Axis,
    Cast,
    Index,
    Kind,
    Program,
    ProgramBuilder,
    Scalar,
    Stage,
    classify,
    exp,
    rebuild,
    rsqrt,
    stage_kind,
)

from ..ops.cases import CASES

N, M = Var("n", 1, 64), Var("m")


def lowered(name: str) -> Program:
    case = CASES[name]
    assert case.operator.lower
    return case.operator.lower(tuple(case.arguments), case.attributes)


OPERATOR_KINDS: Mapping[str, Kind] = {
    "add": Kind.ELEMENTWISE,
    "add_row": Kind.ELEMENTWISE,
    "add_column": Kind.BROADCAST,
    "add_ones": Kind.ELEMENTWISE,
    "add_scalar": Kind.ELEMENTWISE,
    "subtract": Kind.ELEMENTWISE,
    "multiply": Kind.ELEMENTWISE,
    "silu": Kind.ELEMENTWISE,
    "linear": Kind.OUTPUT_FUSIBLE,
    "linear_vector": Kind.OUTPUT_FUSIBLE,
    "linear_cube": Kind.OUTPUT_FUSIBLE,
    "linear_symbolic": Kind.OUTPUT_FUSIBLE,
    "softmax": Kind.REDUCTION,
    "softmax_symbolic": Kind.REDUCTION,
    "rms_norm": Kind.REDUCTION,
    "row_sum": Kind.REDUCTION,
    "reshape": Kind.INJECTIVE,
    "reshape_symbolic": Kind.INJECTIVE,
    "flatten": Kind.INJECTIVE,
    "transpose": Kind.INJECTIVE,
    "take": Kind.INJECTIVE,
    "last_row": Kind.INJECTIVE,
    "concat": Kind.INJECTIVE,
    "rope": Kind.INJECTIVE,
    "rope_interleaved": Kind.INJECTIVE,
    "kv_append": Kind.OPAQUE,
    "attention_scores": Kind.OUTPUT_FUSIBLE,
    "attention_values": Kind.OUTPUT_FUSIBLE,
}


@pytest.mark.parametrize(("name", "kind"), OPERATOR_KINDS.items())
def test_operators(name: str, kind: Kind) -> None:
    assert classify(lowered(name)) == kind


def test_parts_of_softmax_and_rms_norm() -> None:
    kinds = [stage_kind(stage) for stage in lowered("softmax").stages]
    assert kinds == [Kind.REDUCTION, Kind.REDUCTION, Kind.ELEMENTWISE]
    kinds = [stage_kind(stage) for stage in lowered("rms_norm").stages]
    assert kinds == [Kind.OUTPUT_FUSIBLE, Kind.ELEMENTWISE]


@pytest.mark.parametrize("name", FORMATS)
def test_decodes_are_injective(name: str) -> None:
    assert classify(decode_program(FORMATS[name], 3, 256)) == Kind.INJECTIVE


def custom_decode() -> Program:
    """Relax, fig. 9: 4-bit codes, 8 a word, one f32 scale a group of 32."""
    b = ProgramBuilder("decode")
    words, scales = b.input("words", (M, 8), "u32"), b.input("scales", (M, 2), "f32")

    def element(r: Expr, k: Expr) -> Scalar:
        code = (words[r, k // 8] >> Cast("u32", Index(k % 8 * 4))) & 15
        return (Cast("f32", code) - 8) * scales[r, k // 32]

    return b.finish(b.compute("y", (M, 64), element))


def build(kind: str) -> Program:
    b = ProgramBuilder(kind)
    x = b.input("x", (N, M), "f32")
    if kind == "bias":
        bias = b.input("bias", (M,), "f32")
        return b.finish(b.compute("y", (N, M), lambda i, j: x[i, j] + bias[j]))
    if kind == "stencil":
        return b.finish(
            b.compute("y", (N, M), lambda i, j: x[i, maximum(j - 1, 0)] + x[i, j] + x[i, minimum(j + 1, M - 1)])
        )
    if kind == "last":
        return b.finish(b.compute("y", (M,), lambda j: x[N - 1, j]))
    if kind == "subset out of order":
        return b.finish(b.compute("y", (M, N), lambda i, j: x[j, i]))
    if kind == "spread":
        return b.finish(b.compute("y", (2, N, 3, M), lambda i, j, k, m: exp(x[j, m])))
    if kind == "constant":
        return b.finish(b.compute("y", (N,), lambda i: 1.0))
    if kind == "row maximum":
        return b.finish(b.reduce("y", (N,), (M,), lambda i, k: x[i, k], MAX))
    if kind == "row dot":
        return b.finish(b.reduce("y", (N,), (M,), lambda i, k: x[i, k] * x[i, k]))
    if kind == "scaled sum":
        return b.finish(b.reduce("y", (N,), (M,), lambda i, k: x[i, k] * 2))
    if kind == "dot, then its square root":
        dot = b.reduce("dot", (N,), (M,), lambda i, k: x[i, k] * x[i, k])
        return b.finish(b.compute("y", (N,), lambda i: rsqrt(dot[i])))
    if kind == "dot, then spread":
        dot = b.reduce("dot", (N,), (M,), lambda i, k: x[i, k] * x[i, k])
        return b.finish(b.compute("y", (N, M), lambda i, j: dot[i] + x[i, j]))
    if kind == "two results":
        return b.finish(b.compute("y", (N, M), lambda i, j: x[i, j]), b.compute("z", (N, M), lambda i, j: x[i, j]))
    if kind == "in place, the whole":
        return b.finish(b.scatter("y", x, (N, M), lambda i, j: (i, j), lambda i, j: x[i, j] + 1))
    raise ValueError(kind)


SHAPED: Mapping[str, Kind] = {
    "bias": Kind.ELEMENTWISE,
    "stencil": Kind.INJECTIVE,
    "last": Kind.INJECTIVE,
    "subset out of order": Kind.INJECTIVE,
    "spread": Kind.BROADCAST,
    "constant": Kind.ELEMENTWISE,
    "row maximum": Kind.REDUCTION,
    "row dot": Kind.OUTPUT_FUSIBLE,
    "scaled sum": Kind.REDUCTION,
    "dot, then its square root": Kind.OUTPUT_FUSIBLE,
    "dot, then spread": Kind.REDUCTION,
    "two results": Kind.OPAQUE,
    "in place, the whole": Kind.OPAQUE,
}


@pytest.mark.parametrize(("name", "kind"), SHAPED.items())
def test_shapes_of_programs(name: str, kind: Kind) -> None:
    assert classify(build(name)) == kind


def test_custom_decode() -> None:
    assert classify(custom_decode()) == Kind.INJECTIVE


def test_chain_of_stages_has_the_kind_that_restricts_most() -> None:
    b = ProgramBuilder("chain")
    x, row = b.input("x", (N, M), "f32"), b.input("row", (M,), "f32")
    spread = b.compute("spread", (N, M), lambda i, j: row[j])
    total = b.compute("total", (N, M), lambda i, j: x[i, j] + spread[i, j])
    assert classify(b.finish(total)) == Kind.BROADCAST
    turned = b.compute("turned", (M, N), lambda i, j: total[j, i])
    assert classify(b.finish(turned)) == Kind.INJECTIVE


def renamed(program: Program) -> Program:
    """Other names for everything: the program, its buffers, symbols and loops."""
    symbols: dict[Expr, Expr] = {s: Var(f"length_{s.name}", s.lower, s.upper) for s in program.symbols}
    inputs = [replace(b, name=f"in_{b.name}") for b in program.inputs]
    outputs = [replace(b, name=f"out_{b.name}") for b in program.outputs]

    names = [tuple(b.name for b in side) for side in (inputs, outputs)]
    part = Part(program, names[0], names[1], tuple(symbols[s] for s in program.symbols))
    moved = [replace(b, shape=tuple(substitute(e, symbols) for e in b.shape)) for b in (*inputs, *outputs)]
    merged = merge("other", [part], moved[: len(inputs)], moved[len(inputs) :])
    return replace(merged, stages=tuple(map(other_loops, merged.stages)))


def other_loops(stage: Stage) -> Stage:
    names: dict[Expr, Expr] = {
        a.var: Var(f"loop_{at}", a.var.lower, a.var.upper) for at, a in enumerate((*stage.spatial, *stage.reduce))
    }

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        moved = (names[a.var] for a in given)
        return tuple(Axis(v, a.extent) for v, a in zip(moved, given, strict=True) if isinstance(v, Var))

    def scalar(node: Scalar) -> Scalar:
        return rebuild(node, scalar, lambda e: substitute(e, names))

    indices = tuple(substitute(i, names) for i in stage.indices)
    values = tuple(map(scalar, stage.values))
    return Stage(stage.outputs, axes(stage.spatial), indices, values, axes(stage.reduce), stage.reducer)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.operator.lower])
def test_renaming_changes_nothing(name: str) -> None:
    program = lowered(name)
    other = renamed(program)
    assert other.name != program.name
    assert not {load.buffer for s in other.stages for load in s.loads()} & {b.name for b in program.inputs}
    assert classify(other) == classify(program)


def test_kinds_print_as_words() -> None:
    assert str(Kind.OUTPUT_FUSIBLE) == "output fusible"
