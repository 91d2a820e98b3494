"""Which memory each name stands for, and when it is read for the last time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..tir import Program
from .expr import Atom, Binding, Block, CallTIR, If, Name, atoms


@dataclass(frozen=True)
class Tensors:
    """The tensors that a block allocates, in order, and their lives.

    `owners` maps every name to the allocated tensors that it may stand for (through tuples, casts, in-place results and
    the arms of an `if`); a tensor is named (binding, output number). `born` and `dies` are positions in program order,
    where the bindings of an `if`'s arms come before the `if`; what lives on after the block dies at `end`.
    """

    owners: Mapping[str, frozenset[tuple[str, int]]]
    born: Mapping[tuple[str, int], int]
    dies: Mapping[tuple[str, int], int]
    order: tuple[Binding, ...]
    end: int


def linear(block: Block) -> Iterator[Binding]:
    """The bindings in program order, those of an `if`'s arms before it."""
    for binding in block.bindings:
        if isinstance(binding.value, If):
            yield from linear(binding.value.then)
            yield from linear(binding.value.orelse)
        yield binding


def deep_atoms(binding: Binding) -> Iterator[Atom]:
    """What a binding reads, the arms of an `if` included."""
    yield from atoms(binding.value)
    if isinstance(binding.value, If):
        for arm in (binding.value.then, binding.value.orelse):
            for inner in arm.bindings:
                yield from deep_atoms(inner)
            yield arm.result


def allocated_outputs(call: CallTIR, program: Program) -> tuple[int, ...]:
    """The outputs of a call that need memory: those that do not overwrite an input."""
    in_place = {out for out, _ in program.in_place}
    return tuple(at for at, buffer in enumerate(program.outputs) if buffer.name not in in_place)


def tensor_lives(block: Block, programs: Mapping[str, Program]) -> Tensors:
    """Analyses a block of tensor-program calls."""
    owners: dict[str, frozenset[tuple[str, int]]] = {}
    born: dict[tuple[str, int], int] = {}
    dies: dict[tuple[str, int], int] = {}
    order = tuple(linear(block))

    def of(atom: Atom) -> frozenset[tuple[str, int]]:
        return owners.get(atom.name, frozenset()) if isinstance(atom, Name) else frozenset()

    for at, binding in enumerate(order):
        name, value = binding.name.name, binding.value
        for atom in deep_atoms(binding):
            for tensor in of(atom):
                dies[tensor] = at
        if isinstance(value, CallTIR):
            program = programs[value.program]
            mine = {(name, out) for out in allocated_outputs(value, program)}
            for tensor in mine:
                born[tensor] = dies[tensor] = at
            sources = {source for _, source in program.in_place}
            inputs = zip(program.inputs, value.args, strict=True)
            carried = [of(atom) for buffer, atom in inputs if buffer.name in sources]
            owners[name] = frozenset(mine).union(*carried)
        elif isinstance(value, If):
            owners[name] = of(value.then.result) | of(value.orelse.result)
        else:
            owners[name] = frozenset().union(*(of(a) for a in atoms(value)))
    for tensor in of(block.result):
        dies[tensor] = len(order)
    return Tensors(owners, born, dies, order, len(order))
