"""Where tensors go: to fixed places in few storages, or to blocks whose sizes are expressions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir import Block, If, Place
from ..ir.liveness import Lives, TensorKey
from ..symbolic import Expr, prove_less_equal
from ..target import Target

Places = dict[TensorKey, Place]

# More storages leave more freedom to what comes later, but each is a buffer of the device.
FEW = 8


@dataclass
class Pool:
    """Storages of fixed size that functions share which never run at the same time."""

    prefix: str
    target: Target
    sizes: list[int] = field(default_factory=list)

    @property
    def storages(self) -> Mapping[str, int]:
        """Bytes by name."""
        return {self._name(number): size for number, size in enumerate(self.sizes)}

    def _name(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def place(self, lives: Lives, sizes: Mapping[TensorKey, int]) -> Places:
        """Places the tensors of a function, the largest first, each where it makes the storages grow least.

        Tensors that live at the same time get different bytes. What a call writes is in none of the storages that it
        reads from, whether it overwrites an argument or not: a device tracks the use of a storage as a whole.
        """
        together, apart = _together(lives, sizes), _apart(lives)
        placed: dict[TensorKey, tuple[int, int]] = {}
        for tensor in sorted(sizes, key=lambda t: (-sizes[t], lives.born[t])):
            taken: dict[int, list[tuple[int, int]]] = defaultdict(list)
            for other in together[tensor]:
                if other in placed:
                    storage, offset = placed[other]
                    taken[storage].append((offset, offset + sizes[other]))
            forbidden = {placed[other][0] for other in apart[tensor] if other in placed}
            placed[tensor] = self._find(sizes[tensor], taken, forbidden)
        return {t: Place(self._name(number), offset, sizes[t]) for t, (number, offset) in placed.items()}

    def _find(self, size: int, taken: Mapping[int, list[tuple[int, int]]], forbidden: set[int]) -> tuple[int, int]:
        """(storage, offset), where the storages grow least; if by the whole size, in a new one while there are few."""
        best: tuple[int, int, int] | None = None
        for number, available in enumerate(self.sizes):
            if number not in forbidden:
                offset = self._gap(size, taken.get(number, ()))
                growth = max(0, offset + size - available)
                if offset + size <= self.target.buffer_size and (best is None or growth < best[0]):
                    best = growth, number, offset
        if best is None or (best[0] >= size and len(self.sizes) < FEW):
            best = size, len(self.sizes), 0
        growth, number, offset = best
        if number == len(self.sizes):
            self.sizes.append(0)
        self.sizes[number] += growth
        return number, offset

    def _gap(self, size: int, taken: Sequence[tuple[int, int]]) -> int:
        """The lowest aligned offset with `size` free bytes."""
        align, at = self.target.offset_alignment, 0
        for start, stop in sorted(taken):
            if at + size <= start:
                break
            at = max(at, -(-stop // align) * align)
        return at


def _together(lives: Lives, tensors: Mapping[TensorKey, int]) -> Mapping[TensorKey, Sequence[TensorKey]]:
    """For each tensor those that live at the same time. Takes time in their number, not in that of all pairs."""
    together: dict[TensorKey, list[TensorKey]] = {tensor: [] for tensor in tensors}
    alive: list[TensorKey] = []
    for tensor in sorted(tensors, key=lambda t: lives.born[t]):
        alive = [other for other in alive if lives.dies[other] >= lives.born[tensor]]
        for other in alive:
            together[tensor].append(other)
            together[other].append(tensor)
        alive.append(tensor)
    return together


def _apart(lives: Lives) -> Mapping[TensorKey, set[TensorKey]]:
    """For each tensor those that may not be in its storage: some call writes one and reads the other."""
    apart: dict[TensorKey, set[TensorKey]] = defaultdict(set)
    for written, read in zip(lives.writes, lives.reads, strict=True):
        for tensor in written:
            apart[tensor] |= read
        for tensor in read:
            apart[tensor] |= written
    return apart


@dataclass(frozen=True)
class _Block:
    """A storage that is allocated when the function reaches `scope` (a path of `if` arms), with its first tensor."""

    name: str
    size: Expr
    scope: tuple[int, ...]


def share_blocks(
    prefix: str, body: Block, lives: Lives, sizes: Mapping[TensorKey, Expr]
) -> tuple[Places, Mapping[str, Expr]]:
    """Places tensors of unknown size in blocks, and the blocks' sizes (Relax, algorithm 3).

    Walks over the calls: a new tensor takes the smallest free block that is provably as large, or gets a new one; on
    its last use a tensor gives its block back. A block that an arm of an `if` allocates is not used outside the arm,
    which may not run.
    """
    scopes = dict(_scopes(body))
    places: Places = {}
    blocks: list[_Block] = []
    free: list[_Block] = []
    held: dict[TensorKey, _Block] = {}
    dying: dict[int, list[TensorKey]] = defaultdict(list)
    for tensor in sizes:
        dying[lives.dies[tensor]].append(tensor)
    for at, binding in enumerate(lives.order):
        scope = scopes[binding.name.name]
        for tensor in sorted(lives.writes[at]):
            if tensor not in sizes or lives.born[tensor] != at:
                continue
            block = _smallest(free, sizes[tensor], scope)
            if block is None:
                block = _Block(f"{prefix}{len(blocks)}", sizes[tensor], scope)
                blocks.append(block)
            else:
                free.remove(block)
            held[tensor] = block
            places[tensor] = Place(block.name, 0, sizes[tensor])
        free += [held[tensor] for tensor in dying[at]]
    return places, {block.name: block.size for block in blocks}


def _smallest(free: Sequence[_Block], size: Expr, scope: tuple[int, ...]) -> _Block | None:
    best: _Block | None = None
    for block in free:
        if block.scope != scope[: len(block.scope)] or not prove_less_equal(size, block.size):
            continue
        if best is None or (block.size != best.size and prove_less_equal(block.size, best.size)):
            best = block
    return best


def _scopes(block: Block, scope: tuple[int, ...] = ()) -> Sequence[tuple[str, tuple[int, ...]]]:
    """For each binding the arms that it is in; every arm has a number of its own at its level."""
    scopes: list[tuple[str, tuple[int, ...]]] = []
    for at, binding in enumerate(block.bindings):
        scopes.append((binding.name.name, scope))
        if isinstance(binding.value, If):
            scopes += _scopes(binding.value.then, (*scope, 2 * at))
            scopes += _scopes(binding.value.orelse, (*scope, 2 * at + 1))
    return scopes
