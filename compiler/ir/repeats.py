"""Finds what repeats in a function: the layers of a model, told by their structure alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .expr import Atom, Binding, Block, Constant, Name, atoms, map_atoms
from .printer import print_value


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` copies of `period` items each, one after another from item `start` on."""

    start: int
    period: int
    count: int

    def copy(self, number: int) -> range:
        """The positions of one copy."""
        first = self.start + number * self.period
        return range(first, first + self.period)

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def find_repeat(block: Block) -> Repeat | None:
    """The repetition that covers most bindings of a block, the one with the shortest period among equals.

    Copies do the same to corresponding values: each reads its own results, results of the copy before it, or what does
    not repeat. Weights and parameters correspond where their annotations are equal. Where memory lies is no part of it.
    """
    index = {b.name.name: at for at, b in enumerate(block.bindings)}
    reads = [[index.get(a.name, -1) for a in atoms(b.value) if isinstance(a, Name)] for b in block.bindings]

    def reads_the_same(at: int, period: int) -> bool:
        return all(b in (a, a + period) for a, b in zip(reads[at], reads[at + period], strict=True))

    return repeat_of([_key(b) for b in block.bindings], reads_the_same)


def repeat_of(
    items: Sequence[Hashable], corresponds: Callable[[int, int], bool] = lambda at, period: True
) -> Repeat | None:
    """The repetition that covers most items; None where nothing comes twice in a row.

    `corresponds(at, period)` is asked of equal items at `at` and `at + period`.
    """
    numbers: dict[Hashable, int] = {}
    keys = [numbers.setdefault(item, len(numbers)) for item in items]
    best: Repeat | None = None
    for period in _distances(keys):
        apart = [
            at
            for at in range(len(keys) - period + 1)
            if at == len(keys) - period or keys[at] != keys[at + period] or not corresponds(at, period)
        ]
        for before, at in pairwise([-1, *apart]):
            found = Repeat(before + 1, period, (at - before - 1) // period + 1)
            if found.count > 1 and (best is None or found.period * found.count > best.period * best.count):
                best = found
    return best


def _distances(keys: Sequence[int]) -> list[int]:
    """How far equal keys are apart, looking a few occurrences ahead: only these can be periods."""
    where: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        where.setdefault(key, []).append(at)
    pairs = (zip(p, p[ahead:], strict=False) for p in where.values() for ahead in range(1, 5))
    found = {b - a for pair in pairs for a, b in pair}
    return sorted(d for d in found if d <= len(keys) // 2)


def _key(binding: Binding) -> str:
    """What a binding does, without the names."""

    def masked(atom: Atom) -> Atom:
        return Name("_", atom.annotation) if isinstance(atom, Name | Constant) else atom

    kinds = [str(a.annotation) for a in atoms(binding.value) if isinstance(a, Name | Constant)]
    return f"{binding.name.annotation} = {print_value(map_atoms(binding.value, masked))} of {kinds}"
