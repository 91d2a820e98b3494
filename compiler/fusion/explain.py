"""What fusion decided, for people: which calls became one kernel, and why a kernel ended where it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ir import Block, CallLibrary, CallTIR, Function, If, Module, Ownership
from ..target import Target
from ..tir import Kind, classify
from .grouping import Grouping

ROUTINE = "it is a library routine: its kernel is written as a whole"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the calls of a function are grouped.

    `groups` has the calls of each future kernel, in program order; the last one names it. `reasons` says for each
    of these names why the kernel was not merged into the one that reads its result. `kinds` has the pattern kind of
    each call.
    """

    groups: tuple[tuple[str, ...], ...]
    reasons: Mapping[str, str]
    kinds: Mapping[str, str]


def explain(module: Module, target: Target) -> dict[str, Explanation]:
    """The groups that `fuse_ops` makes of each function, by the predicates that it decides with."""
    kinds = {name: classify(program) for name, program in module.programs.items()}
    return {name: _explain(module, target, kinds, f) for name, f in module.functions.items() if not f.fused}


def _explain(module: Module, target: Target, kinds: Mapping[str, Kind], function: Function) -> Explanation:
    groups: list[tuple[str, ...]] = []
    reasons: dict[str, str] = {}
    named: dict[str, str] = {}
    ownership = Ownership(module, function)
    for block in _blocks(function.body):
        grouping = Grouping(module, kinds, target, block, ownership)
        fused = grouping.run()
        inner = {at for root, members in fused.items() for at in members if at != root}
        for at, binding in enumerate(block.bindings):
            if isinstance(binding.value, CallLibrary):
                groups.append((binding.name.name,))
                reasons[binding.name.name], named[binding.name.name] = ROUTINE, "library"
            if not isinstance(binding.value, CallTIR):
                continue
            named[binding.name.name] = str(kinds[binding.value.program])
            if at not in inner:
                groups.append(tuple(block.bindings[member].name.name for member in fused.get(at, [at])))
                reasons[binding.name.name] = grouping.refusals.get(at) or _no_single_reader(grouping, at)
    return Explanation(tuple(groups), reasons, named)


def _blocks(block: Block) -> Iterable[Block]:
    yield block
    for binding in block.bindings:
        if isinstance(binding.value, If):
            yield from _blocks(binding.value.then)
            yield from _blocks(binding.value.orelse)


def _no_single_reader(grouping: Grouping, at: int) -> str:
    """Why there is no single kernel that the call could have joined."""
    if at not in grouping.group:
        return "its shapes are not known when it is compiled"
    bindings = grouping.block.bindings
    readers = [user for user in sorted(grouping.users[at]) if user in grouping.group]
    others = [user for user in grouping.users[at] if user not in grouping.group]
    kernels = list(dict.fromkeys(bindings[grouping.group[user]].name.name for user in readers))
    if not kernels:
        values = (bindings[user].value for user in others if user < len(bindings))
        if any(isinstance(value, CallLibrary) for value in values):
            return "a library routine reads its result: its kernel is written as a whole"
        return "its result leaves the function" if others else "nothing reads its result"
    if len(kernels) > 1:
        return f"{len(kernels)} kernels read its result: {', '.join(kernels)}"
    return f"not only {kernels[0]} reads its result"
