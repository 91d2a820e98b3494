"""Which tensors a function allocates, how large they are, and when each is read for the last time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..symbolic import Expr, substitute
from ..tir import Buffer, Program
from .expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Function,
    If,
    Module,
    ProgramCall,
    TensorToShape,
    Value,
    atoms,
)
from .ownership import Ownership, origins, overwritten_arguments, value_args

TensorKey = tuple[str, int]
"""A tensor that a function allocates: the binding that makes it, and the number of the output."""


@dataclass(frozen=True)
class Lives:
    """The tensors that a function allocates, and their lives.

    `sizes` has their bytes, in program order. `born` and `dies` are positions in `order`, the bindings in program order
    (those of an `if`'s arms before it): of the call that writes a tensor first, and of the last that reads it under
    whatever name. What the function returns dies at `end`. `writes` and `reads` have for each position the tensors that
    the binding writes, and those that it only reads.
    """

    sizes: Mapping[TensorKey, Expr]
    born: Mapping[TensorKey, int]
    dies: Mapping[TensorKey, int]
    order: tuple[Binding, ...]
    writes: tuple[frozenset[TensorKey], ...]
    reads: tuple[frozenset[TensorKey], ...]

    @property
    def end(self) -> int:
        """The position behind the last binding."""
        return len(self.order)


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


def allocated_outputs(call: ProgramCall, program: Program) -> tuple[int, ...]:
    """The outputs of a call that need memory: those that do not overwrite an input."""
    in_place = {out for out, _ in program.in_place}
    return tuple(at for at, buffer in enumerate(program.outputs) if buffer.name not in in_place)


def allocations(value: Value, programs: Mapping[str, Program]) -> Mapping[int, Expr]:
    """The outputs that need memory when a value is computed, by number, with their bytes.

    A routine allocates itself what has a shape that only its run tells; a graph function allocates its results.
    """
    match value:
        case CallTIR(program=name, sym_args=sym_args) | CallLibrary(program=name, sym_args=sym_args) if name:
            program = programs[name]
            symbols = dict(zip(program.symbols, sym_args, strict=True))
            return {at: substitute(program.outputs[at].size, symbols) for at in allocated_outputs(value, program)}
        case CallLibrary(outputs=outputs):
            return {
                at: Buffer("", tensor.shape, tensor.dtype).size
                for at, tensor in enumerate(outputs)
                if tensor.shape is not None and tensor.dtype is not None
            }
    return {}


def tensor_lives(module: Module, function: Function) -> Lives:
    """Analyses a function. Names, tuples, casts and choices are other names of what they hold, and read nothing."""
    memory = Ownership(module, function).memory
    keys: dict[str, TensorKey] = {}
    sizes: dict[TensorKey, Expr] = {}
    born: dict[TensorKey, int] = {}
    dies: dict[TensorKey, int] = {}
    order = tuple(linear(function.body))
    writes: list[frozenset[TensorKey]] = []
    reads: list[frozenset[TensorKey]] = []

    def held(atom: Atom) -> frozenset[TensorKey]:
        return frozenset(keys[origin] for origin in origins(memory(atom)) if origin in keys)

    for at, binding in enumerate(order):
        name, value = binding.name.name, binding.value
        overwritten = overwritten_arguments(module, value)
        written, read = set[TensorKey](), set[TensorKey]()
        for number, atom in enumerate(_operands(value)):
            (written if number in overwritten else read).update(held(atom))
        for out, size in allocations(value, module.programs).items():
            key = keys[f"{name}.{out}"] = name, out
            sizes[key], born[key] = size, at
            written.add(key)
        dies.update(dict.fromkeys(written | read, at))
        writes.append(frozenset(written))
        reads.append(frozenset(read))
    dies.update(dict.fromkeys(held(function.body.result), len(order)))
    return Lives(sizes, born, dies, order, tuple(writes), tuple(reads))


def _operands(value: Value) -> tuple[Atom, ...]:
    """What a value looks into when it is computed, as `value_args` numbers it."""
    if isinstance(value, Call | CallTIR | CallLibrary | CallFunction):
        return value_args(value)
    return (value.condition,) if isinstance(value, If) else atoms(value) if isinstance(value, TensorToShape) else ()
