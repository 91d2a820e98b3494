"""Splits a program with several outputs into programs that do not need each other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..tir import Program, free_symbols


def components(program: Program) -> list[Program]:
    """The independent parts of a program, in the order of its stages; the program itself if all belongs together.

    Stages belong together where one reads what another computes, or overwrites what another reads.
    """
    sources = dict(program.in_place)
    written = {b.name for b in (*program.outputs, *program.locals)} | set(sources.values())
    groups: list[tuple[set[int], set[str]]] = []  # stages, and what ties them to others
    for at, stage in enumerate(program.stages):
        members = {at}
        ties = {*stage.outputs, *(sources[name] for name in stage.outputs if name in sources)}
        ties |= {load.buffer for load in stage.loads() if load.buffer in written}
        for joined in [g for g in groups if g[1] & ties]:
            groups.remove(joined)
            members, ties = members | joined[0], ties | joined[1]
        groups.append((members, ties))
    if len(groups) == 1:
        return [program]
    return [_part(program, members) for members, _ in sorted(groups, key=lambda g: min(g[0]))]


def _part(program: Program, members: Collection[int]) -> Program:
    stages = tuple(stage for at, stage in enumerate(program.stages) if at in members)
    made = {name for stage in stages for name in stage.outputs}
    in_place = tuple(pair for pair in program.in_place if pair[0] in made)
    read = {load.buffer for stage in stages for load in stage.loads()} | {source for _, source in in_place}
    part = Program(
        program.name,
        tuple(b for b in program.inputs if b.name in read),
        tuple(b for b in program.outputs if b.name in made),
        stages,
        tuple(b for b in program.locals if b.name in made),
        (),
        in_place,
    )
    return replace(part, symbols=free_symbols(part))
