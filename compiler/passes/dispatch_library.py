"""dispatch_library: operator calls that a table knows a better kernel for become calls of library routines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..ir import (
    Annotation,
    Atom,
    Binding,
    BlockBuilder,
    Call,
    CallLibrary,
    Function,
    Module,
    ModuleBuilder,
    Name,
    Names,
    Operator,
    Tensor,
    Value,
    all_bindings,
    rewrite_bindings,
    splice,
    taken_names,
)
from ..target import Target
from ..tir import Program
from .dce import sweep
from .share_calls import share_library_calls

Arguments: TypeAlias = tuple[Annotation, ...]
Attributes: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Routine:
    """A kernel that is looked up by `name` at link time.

    `reference(arguments, attributes)` gives the tensor program that says what it computes, whose inputs are the tensor
    arguments in order, as `Operator.lower` does. A target's routines derive from this class and bring the kernel.
    """

    name: str
    reference: Callable[[Arguments, Attributes], Program]


class LibraryBuilder(BlockBuilder):
    """Binds calls of routines and of operators."""

    def __init__(self, programs: ModuleBuilder, names: Names) -> None:
        super().__init__(names)
        self._programs = programs

    def library(self, routine: Routine, *args: Atom, hint: str | None = None, **attributes: Any) -> Name:
        """Calls a routine; arguments that are shapes are for its reference alone. A tuple if it has several results."""
        program = routine.reference(tuple(a.annotation for a in args), attributes)
        call = CallLibrary(
            routine.name,
            tuple(a for a in args if isinstance(a.annotation, Tensor)),
            tuple(Tensor(b.shape, b.dtype) for b in program.outputs),
            self._programs.add_program(program),
            program.symbols,
            tuple(sorted(attributes.items())),
        )
        return self.emit(call, hint or routine.name)


Condition: TypeAlias = Callable[[Arguments, Attributes, Target], bool]
Rewrite: TypeAlias = Callable[[LibraryBuilder, tuple[Atom, ...], Attributes], Atom]


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the table: calls of `operator` for which `condition` holds become calls of `routines`.

    The condition sees annotations, whose shapes may be unknown. `rewrite(builder, args, attributes)` binds the calls
    and gives the result; without it, the only routine gets the operator's arguments and attributes.

    `operands` lists (argument, operator): the entry is for calls whose argument is the result of that operator. Then
    the arguments of that call stand in the place of its result, and the attributes are those of both.
    """

    operator: Operator
    routines: tuple[Routine, ...]
    condition: Condition = lambda arguments, attributes, target: True
    rewrite: Rewrite | None = None
    operands: tuple[tuple[int, Operator], ...] = ()

    def calls(self, builder: LibraryBuilder, args: tuple[Atom, ...], attributes: Attributes) -> Atom:
        """Binds the calls that replace one of the operator."""
        if self.rewrite is not None:
            return self.rewrite(builder, args, attributes)
        (routine,) = self.routines
        return builder.library(routine, *args, **attributes)


def dispatch_library(module: Module, target: Target, table: Sequence[Entry]) -> Module:
    """Replaces each operator call by what the first entry that fits says. Calls that no entry fits stay as they are.

    A call that was an operand of replaced ones alone is dropped; equal calls of routines are made once.
    """
    builder = ModuleBuilder(module)

    def dispatch(binding: Binding, names: Names, made: Mapping[str, Value]) -> Iterable[Binding]:
        call = binding.value
        if not isinstance(call, Call):
            return [binding]
        for entry in table:
            found = _operands(entry, call, made) if entry.operator is call.op else None
            if found is None:
                continue
            args, attributes = found
            if entry.condition(tuple(a.annotation for a in args), attributes, target):
                block = LibraryBuilder(builder, names)
                return splice(binding, block.block(entry.calls(block, args, attributes)))
        return [binding]

    def dispatch_function(function: Function) -> Function:
        names = taken_names(function)
        made = {binding.name.name: binding.value for binding in all_bindings(function.body)}
        body = rewrite_bindings(function.body, lambda binding: dispatch(binding, names, made))
        if body == function.body:
            return function
        return replace(function, body=sweep(share_library_calls(body)))

    functions = {name: dispatch_function(f) for name, f in module.functions.items()}
    return replace(module, functions=functions, programs=builder.programs)


def _operands(entry: Entry, call: Call, made: Mapping[str, Value]) -> tuple[tuple[Atom, ...], dict[str, Any]] | None:
    """The arguments and attributes that an entry sees of a call; None where an operand is of another operator."""
    args, attributes = list(call.args), dict(call.attributes)
    for at, operator in sorted(entry.operands, key=lambda operand: -operand[0]):
        atom = call.args[at]
        inner = made.get(atom.name) if isinstance(atom, Name) else None
        if not isinstance(inner, Call) or inner.op is not operator:
            return None
        args[at : at + 1] = inner.args
        attributes |= dict(inner.attributes)
    return tuple(args), attributes
