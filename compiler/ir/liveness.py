"""Which memory each name stands for, and when it is read for the last time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..tir import Program
from .expr import Atom, Binding, Block, CallTIR, GetItem, If, MakeTuple, Name, atoms


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


Owners = frozenset[tuple[str, int]]


def tensor_lives(block: Block, programs: Mapping[str, Program]) -> Tensors:
    """Analyses a block of tensor-program calls."""
    owners: dict[str, Owners] = {}
    fields: dict[str, tuple[Owners, ...]] = {}
    born: dict[tuple[str, int], int] = {}
    dies: dict[tuple[str, int], int] = {}
    order = tuple(linear(block))

    def of(atom: Atom) -> Owners:
        return owners.get(atom.name, frozenset()) if isinstance(atom, Name) else frozenset()

    for at, binding in enumerate(order):
        name, value = binding.name.name, binding.value
        if isinstance(value, GetItem) and str(value.tuple_value) in fields:
            # Taking a field apart is no use of the others.
            owners[name] = fields[str(value.tuple_value)][value.index]
            continue
        for atom in deep_atoms(binding):
            for tensor in of(atom):
                dies[tensor] = at
        if isinstance(value, CallTIR):
            fields[name] = _results(name, value, programs[value.program], of)
            owners[name] = frozenset().union(*fields[name])
            for tensor in owners[name]:
                born.setdefault(tensor, at)
                dies[tensor] = at
        elif isinstance(value, If):
            owners[name] = of(value.then.result) | of(value.orelse.result)
        else:
            owners[name] = frozenset().union(*(of(a) for a in atoms(value)))
            if isinstance(value, MakeTuple):
                fields[name] = tuple(of(a) for a in value.fields)
    for tensor in of(block.result):
        dies[tensor] = len(order)
    return Tensors(owners, born, dies, order, len(order))


def _results(name: str, call: CallTIR, program: Program, of: Callable[[Atom], Owners]) -> tuple[Owners, ...]:
    """For each output of a call the tensors that it may stand for: its own, or those of the input that it overwrites."""
    inputs = {b.name: atom for b, atom in zip(program.inputs, call.args, strict=True)}
    sources = dict(program.in_place)
    return tuple(
        of(inputs[sources[buffer.name]]) if buffer.name in sources else frozenset({(name, at)})
        for at, buffer in enumerate(program.outputs)
    )
