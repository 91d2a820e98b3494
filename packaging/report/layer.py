"""One layer of a function: its operators, the kernels that they became, and why these are not fewer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..reader import Bundle
from .facts import Step


@dataclass(frozen=True)
class Operation:
    """An operator call before fusion: `does` names what it calls, `reads` its arguments, weights with an @."""

    name: str
    does: str
    kind: str
    type: str
    reads: tuple[str, ...]

    @property
    def label(self) -> str:
        """What it calls, without the number that tells programs of one name apart."""
        return re.sub(r"_\d+$", "", self.does) or self.name


@dataclass(frozen=True)
class LayerKernel:
    """A dispatch of the layer: the operations that it does, and why it is not part of one that reads its results, or
    does more beside them.

    `kernel` is the number of the device's kernel, -1 where a pass left no call of the group. `parts` are the groups
    that run side by side in it. `readers` are the positions in the layer of the kernels that read its results;
    `leaves` where something outside the layer does.
    """

    kernel: int
    name: str
    parts: tuple[tuple[str, ...], ...]
    readers: tuple[int, ...]
    leaves: bool
    reasons: tuple[str, ...]

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(operation for part in self.parts for operation in part)


@dataclass(frozen=True)
class Layer:
    """The middle one of `count` equal layers. `leaves` names the values that are read outside of it."""

    function: str
    count: int
    operations: tuple[Operation, ...]
    kernels: tuple[LayerKernel, ...]
    leaves: tuple[str, ...]


def layers(bundle: Bundle, steps: Mapping[str, Step]) -> dict[str, Layer]:
    """A layer of each function of which the bundle stores one."""
    stored = bundle.stored["layers"]
    return {name: _layer(bundle, name, stored[name], step) for name, step in steps.items() if name in stored}


def _layer(bundle: Bundle, function: str, stored: Mapping[str, Any], step: Step) -> Layer:
    operations = tuple(
        Operation(c["name"], c["does"], c["kind"], c["type"], tuple(c["reads"])) for c in stored["calls"]
    )
    groups: dict[str, tuple[str, ...]] = {group[-1]: tuple(group) for group in stored["groups"]}
    reasons = stored["reasons"]
    made = step.made_by()
    roots: dict[str, list[str]] = {}
    for root in groups:
        roots.setdefault(made.get(root, root), []).append(root)
    launched = {binding.name.name: dispatch.kernel for binding, dispatch in step.calls()}
    order = sorted(roots, key=lambda call: list(launched).index(call) if call in launched else len(launched))
    members = {call: tuple(groups[root] for root in roots[call]) for call in order}
    readers = _readers(operations, [[name for part in parts for name in part] for parts in members.values()])
    outside = frozenset(stored["leaves"])
    kernels = []
    for at, call in enumerate(order):
        number = launched.get(call, -1)
        name = bundle.kernels[number].name if number >= 0 else ""
        given = tuple(dict.fromkeys(r[root] for r in (reasons, stored["beside"]) for root in roots[call] if root in r))
        parts = members[call]
        leaves = any(not outside.isdisjoint(part) for part in parts)
        kernels.append(LayerKernel(number, name, parts, tuple(readers[at]), leaves, given))
    return Layer(function, stored["count"], operations, tuple(kernels), tuple(stored["leaves"]))


def _readers(operations: Sequence[Operation], kernels: Sequence[Sequence[str]]) -> list[list[int]]:
    """For each kernel the others that read what it makes, through names for the same value too."""
    place = {name: at for at, names in enumerate(kernels) for name in names}
    found: list[set[int]] = [set() for _ in kernels]
    for operation in operations:
        makers = {place[name] for name in operation.reads if name in place}
        if operation.name not in place and len(makers) == 1:
            (place[operation.name],) = makers
        for maker in makers - {place.get(operation.name, -1)}:
            found[maker].add(place.get(operation.name, -1))
    return [sorted(readers - {-1}) for readers in found]
