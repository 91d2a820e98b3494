"""Merging tensor programs: renaming buffers and symbols, and inlining pointwise stages into their readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..symbolic import Expr, Opaque, map_opaque, substitute
from ..tir import Axis, Buffer, Load, Program, Scalar, Stage, direct_loads, free_symbols, rebuild, substitute_scalar


@dataclass(frozen=True)
class Part:
    """One program of a group: the group's buffers for its inputs and outputs, and the expressions for its symbols."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    symbols: tuple[Expr, ...]


def merge(name: str, parts: Sequence[Part], inputs: Sequence[Buffer], results: Sequence[Buffer]) -> Program:
    """One program that does what the parts do one after another; buffers between them become local or disappear.

    Pointwise intermediate stages are inlined into the stages that read them, so that they live in registers; a
    reduction's result stays a local buffer.
    """
    stages: list[Stage] = []
    local: dict[str, Buffer] = {}
    in_place: list[tuple[str, str]] = []
    outer = {b.name for b in (*inputs, *results)}
    taken = outer.union(*(part.outputs for part in parts))
    for part in parts:
        program = part.program
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, part.symbols, strict=True))
        names = {b.name: _fresh(b.name, taken) for b in program.locals}
        names |= dict(zip((b.name for b in program.inputs), part.inputs, strict=True))
        names |= dict(zip((b.name for b in program.outputs), part.outputs, strict=True))
        for buffer in (*program.locals, *program.outputs):
            if names[buffer.name] not in outer:
                local[names[buffer.name]] = Buffer(names[buffer.name], _map(buffer.shape, symbols), buffer.dtype)
        stages += [_rename_stage(stage, names, symbols) for stage in program.stages]
        in_place += [(names[out], names[source]) for out, source in program.in_place]
    overwritten = {name for pair in in_place for name in pair}
    stages = live_stages(inline_pointwise(stages, set(local), overwritten), {b.name for b in results})
    written = {name for stage in stages for name in stage.outputs}
    kept = tuple(b for name, b in local.items() if name in written)
    program = Program(name, tuple(inputs), tuple(results), tuple(stages), kept, (), tuple(in_place))
    return replace(program, symbols=free_symbols(program))


def _fresh(base: str, taken: set[str]) -> str:
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def inline_pointwise(stages: Sequence[Stage], local: set[str], overwritten: set[str]) -> list[Stage]:
    """Removes pointwise stages that write a local buffer by putting their value in place of its loads.

    A stage stays if its result serves as an index, or if it reads an overwritten buffer: the read must not move.
    """
    values: dict[str, tuple[tuple[Axis, ...], Scalar]] = {}
    replaceable = local.difference(*map(_index_buffers, stages))
    kept = []
    for stage in stages:
        stage = replace(stage, values=tuple(_inline(v, values) for v in stage.values))
        reads = {load.buffer for load in stage.loads()}
        is_whole = stage.reducer is None and stage.is_pointwise and len(stage.outputs) == 1
        if is_whole and stage.outputs[0] in replaceable and not reads & overwritten:
            values[stage.outputs[0]] = (stage.spatial, stage.values[0])
        else:
            kept.append(stage)
    return kept


def live_stages(stages: Sequence[Stage], results: set[str]) -> list[Stage]:
    """The stages that the results need."""
    needed, kept = set(results), []
    for stage in reversed(stages):
        if not needed.isdisjoint(stage.outputs):
            needed.update(load.buffer for load in stage.loads())
            kept.append(stage)
    return kept[::-1]


def _index_buffers(stage: Stage) -> set[str]:
    """Buffers whose elements serve as indices: they cannot be replaced by a computed value."""
    direct = Counter(load.buffer for value in stage.values for load in direct_loads(value))
    every = Counter(load.buffer for load in stage.loads())
    return set(every - direct)


def _inline(node: Scalar, values: Mapping[str, tuple[tuple[Axis, ...], Scalar]]) -> Scalar:
    if isinstance(node, Load) and node.buffer in values:
        axes, value = values[node.buffer]
        return substitute_scalar(value, {axis.var: index for axis, index in zip(axes, node.indices, strict=True)})
    return rebuild(node, lambda child: _inline(child, values), lambda index: index)


def _map(exprs: Sequence[Expr], mapping: Mapping[Expr, Expr | int]) -> tuple[Expr, ...]:
    return tuple(substitute(e, mapping) for e in exprs)


def _rename_stage(stage: Stage, names: Mapping[str, str], symbols: Mapping[Expr, Expr | int]) -> Stage:
    """The stage over other buffers, with the program's symbols replaced."""

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.var, substitute(a.extent, symbols)) for a in given)

    return Stage(
        tuple(names[o] for o in stage.outputs),
        axes(stage.spatial),
        tuple(substitute(rename_index(i, names), symbols) for i in stage.indices),
        tuple(rename_scalar(v, names, symbols) for v in stage.values),
        axes(stage.reduce),
        stage.reducer,
    )


def rename_scalar(node: Scalar, names: Mapping[str, str], symbols: Mapping[Expr, Expr | int]) -> Scalar:
    """The expression over other buffers, with symbols and loop variables replaced."""
    renamed = rebuild(
        node,
        lambda child: rename_scalar(child, names, symbols),
        lambda expr: substitute(rename_index(expr, names), symbols),
    )
    return replace(renamed, buffer=names[renamed.buffer]) if isinstance(renamed, Load) else renamed


def rename_index(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An index expression whose loaded parts read other buffers."""

    def change(opaque: Opaque) -> Expr:
        load = opaque.payload
        if not isinstance(load, Load):
            return opaque
        inner = tuple(rename_index(i, names) for i in load.indices)
        return Opaque(Load(names[load.buffer], inner, load.type), opaque.lower, opaque.upper)

    return map_opaque(expr, change)
