"""The graph level: functions of dataflow bindings in A-normal form, and the module that holds them with programs."""

from __future__ import annotations

from collections.abc import Callable as Function_
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from ..symbolic import Expr, Var
from ..tir import Program
from .annotations import Annotation, Shape, Tensor, Tuple, dimensions

if TYPE_CHECKING:
    from .builder import BlockBuilder


@dataclass(frozen=True, slots=True)
class Name:
    """A value bound earlier in the function. Names are unique within a function."""

    name: str
    annotation: Annotation

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Constant:
    """A weight: a named tensor that lives as long as the module."""

    name: str
    annotation: Tensor

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """A shape as a value."""

    dims: tuple[Expr, ...]

    @property
    def annotation(self) -> Annotation:
        return Shape(self.dims)

    def __str__(self) -> str:
        return f"shape({', '.join(map(str, self.dims))})"


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A graph function of the module as a value."""

    name: str
    annotation: Annotation

    def __str__(self) -> str:
        return self.name


Atom = Name | Constant | ShapeValue | FunctionRef


@dataclass(frozen=True, slots=True)
class Operator:
    """An entry of the operator table: a shape rule, and a lowering to a tensor program.

    `deduce(arguments, attributes)` gives the result's annotation and raises ValueError, with a sentence, where
    arguments do not fit. `lower` gives a program whose inputs are the tensor arguments in order; None if the operator
    has no lowering. `overwrites` lists the arguments whose memory the result carries on. An operator that several
    others make up has `expand(builder, args, attributes)` instead: it binds their calls and gives the result.
    """

    name: str
    deduce: Function_[[tuple[Annotation, ...], Mapping[str, Any]], Annotation]
    lower: Function_[[tuple[Annotation, ...], Mapping[str, Any]], Program] | None
    overwrites: tuple[int, ...] = ()
    expand: Function_[[BlockBuilder, tuple[Atom, ...], Mapping[str, Any]], Atom] | None = None

    def __repr__(self) -> str:
        return f"Operator({self.name})"


@dataclass(frozen=True, slots=True)
class Call:
    """An operator applied to atoms."""

    op: Operator
    args: tuple[Atom, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CallTIR:
    """A tensor program of the module, its outputs allocated, called on tensors.

    `outputs` annotates the results, one for each output buffer; `sym_args` gives the program's symbols. An argument
    that the program overwrites (`Program.in_place`) is consumed: the result carries its memory on.
    """

    program: str
    args: tuple[Atom, ...]
    outputs: tuple[Tensor, ...]
    sym_args: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class CallLibrary:
    """A routine looked up by name at link time, in destination-passing style.

    `program` names the tensor program that says what it computes, with `sym_args` for its symbols: then the call is one
    of that program in all but the kernel. `attributes` are for the routine. Without a program ("") only the
    interpreter can run it, from a NumPy function.
    """

    routine: str
    args: tuple[Atom, ...]
    outputs: tuple[Tensor, ...]
    program: str = ""
    sym_args: tuple[Expr, ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class CallFunction:
    """A graph function, named or first-class."""

    callee: FunctionRef | Name
    args: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class MakeTuple:
    fields: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class GetItem:
    tuple_value: Atom
    index: int


@dataclass(frozen=True, slots=True)
class MatchCast:
    """Asserts a finer annotation, checked when the program runs; its unbound variables are bound by it.

    A message of the check names the binding, or what `about` says instead: "subfn: argument x".
    """

    value: Atom
    annotation: Annotation
    about: str = ""


@dataclass(frozen=True, slots=True)
class TensorToShape:
    """The integers of an i32 tensor of rank 1 as a shape: what only running the program tells becomes a dimension."""

    value: Atom


@dataclass(frozen=True, slots=True)
class If:
    """Both arms are blocks; the condition is a tensor of one i32, nonzero for `then`."""

    condition: Atom
    then: Block
    orelse: Block


ProgramCall = CallTIR | CallLibrary
Value = Atom | Call | CallTIR | CallLibrary | CallFunction | MakeTuple | GetItem | MatchCast | TensorToShape | If


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lives: `size` bytes from `offset` in a storage. Set by plan_memory.

    The size is an expression where it has no upper bound.
    """

    storage: str
    offset: int
    size: int | Expr

    def __str__(self) -> str:
        return f"{self.storage}[{self.offset}:{self.offset + self.size}]"


@dataclass(frozen=True, slots=True)
class Binding:
    """`name = value`; `places` has one place for each tensor that the value allocates, once memory is planned."""

    name: Name
    value: Value
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    bindings: tuple[Binding, ...]
    result: Atom


@dataclass(frozen=True, slots=True)
class Function:
    """A graph function.

    `consumed` pairs (parameter index, result index): the parameter's memory is overwritten and that result carries it
    on. `requires` lists (a, b) with a <= b, checked at entry beside the bounds of the variables. `fused` marks a group
    made by fuse_ops. `slots` maps each symbolic expression that the function needs to an entry of the integer table,
    once shapes are lowered. `captured`: every call makes the same dispatches, which a run time may replay.
    """

    name: str
    params: tuple[Name, ...]
    body: Block
    result: Annotation
    consumed: tuple[tuple[int, int], ...] = ()
    requires: tuple[tuple[Expr, Expr], ...] = ()
    fused: bool = False
    slots: tuple[Expr, ...] = ()
    captured: bool = False

    @property
    def results(self) -> tuple[Annotation, ...]:
        return self.result.fields if isinstance(self.result, Tuple) else (self.result,)


@dataclass(frozen=True)
class Module:
    """Graph functions and tensor programs by name, and the storages of the memory plan with their sizes in bytes.

    A storage whose size is an expression is allocated anew by each call of the function that uses it.
    """

    functions: Mapping[str, Function]
    programs: Mapping[str, Program] = field(default_factory=dict)
    storages: Mapping[str, int | Expr] = field(default_factory=dict)

    def with_functions(self, functions: Mapping[str, Function]) -> Module:
        return replace(self, functions=functions)


def calls_program(value: Value) -> TypeGuard[ProgramCall]:
    """Whether a tensor program of the module says what the value computes."""
    return isinstance(value, ProgramCall) and value.program != ""


def atoms(value: Value) -> tuple[Atom, ...]:
    """The atoms that a value reads itself; for an `if`, only its condition."""
    match value:
        case Call(args=args) | CallTIR(args=args) | CallLibrary(args=args):
            return args
        case CallFunction(callee, args):
            return (callee, *args)
        case MakeTuple(fields):
            return fields
        case GetItem(v, _) | MatchCast(v, _) | TensorToShape(v):
            return (v,)
        case If(condition):
            return (condition,)
    assert isinstance(value, Atom)
    return (value,)


def map_atoms(value: Value, change: Function_[[Atom], Atom]) -> Value:
    """The value with the atoms of `atoms(value)` mapped; for an `if`, those inside the arms too."""
    match value:
        case Call() | CallTIR() | CallLibrary():
            return replace(value, args=tuple(map(change, value.args)))
        case CallFunction(callee, args):
            changed = change(callee)
            assert isinstance(changed, FunctionRef | Name)
            return CallFunction(changed, tuple(map(change, args)))
        case MakeTuple(fields):
            return MakeTuple(tuple(map(change, fields)))
        case GetItem(v, index):
            return GetItem(change(v), index)
        case MatchCast(v) | TensorToShape(v):
            return replace(value, value=change(v))
        case If(condition, then, orelse):
            return If(change(condition), _map_block(then, change), _map_block(orelse, change))
    return change(value)


def _map_block(block: Block, change: Function_[[Atom], Atom]) -> Block:
    bindings = tuple(replace(b, value=map_atoms(b.value, change)) for b in block.bindings)
    return Block(bindings, change(block.result))


def all_bindings(block: Block) -> Iterator[Binding]:
    """Every binding in program order, those of `if` arms included."""
    for binding in block.bindings:
        if isinstance(binding.value, If):
            yield from all_bindings(binding.value.then)
            yield from all_bindings(binding.value.orelse)
        yield binding


def use_counts(block: Block) -> dict[str, int]:
    """How often each name is read, results of blocks included."""
    counts: dict[str, int] = {}

    def visit(block: Block) -> None:
        for binding in block.bindings:
            for atom in atoms(binding.value):
                if isinstance(atom, Name):
                    counts[atom.name] = counts.get(atom.name, 0) + 1
            if isinstance(binding.value, If):
                visit(binding.value.then)
                visit(binding.value.orelse)
        if isinstance(block.result, Name):
            counts[block.result.name] = counts.get(block.result.name, 0) + 1

    visit(block)
    return counts


def bound_variables(function: Function) -> frozenset[Var]:
    """The symbolic variables that the function's parameters bind: those that stand alone as a dimension."""
    return frozenset(d for p in function.params for d in dimensions(p.annotation) if isinstance(d, Var))
