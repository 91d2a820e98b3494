"""Everything in a module called something else: what is left is what a pass may look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from webrelax.compiler.fusion.merge import rename_index, rename_scalar
from webrelax.compiler.ir import (
    Annotation,
    Atom,
    Binding,
    Block,
    BlockBuilder,
    Constant,
    Function,
    Module,
    Name,
    Operator,
    ShapeValue,
    annotation_variables,
    map_atoms,
    map_dimensions,
)
from webrelax.compiler.passes.dispatch_library import Entry, LibraryBuilder, Routine
from webrelax.compiler.symbolic import Expr, Var, substitute, variables
from webrelax.compiler.tir import Axis, Buffer, Program, Stage, scalar_variables


def other(name: str) -> str:
    """Another name, of which there is one; different names stay different.

    It has the first letter of the old one, since sums are printed in the order of their variables' names.
    """
    return name if name[1:2].isupper() else name[0] + name.upper()


def rename_operators(monkeypatch: pytest.MonkeyPatch, table: Sequence[Entry]) -> tuple[Entry, ...]:
    """Makes every builder use operators and routines of other names, and gives the table of these."""
    build, call = BlockBuilder.op, LibraryBuilder.library

    def op(self: BlockBuilder, operator: Operator, *args: Atom, **rest: Any) -> Name:
        return build(self, other_operator(operator), *args, **rest)

    def library(self: LibraryBuilder, routine: Routine, *args: Atom, **rest: Any) -> Name:
        return call(self, other_routine(routine), *args, **rest)

    monkeypatch.setattr(BlockBuilder, "op", op)
    monkeypatch.setattr(LibraryBuilder, "library", library)
    return tuple(
        replace(entry, operator=other_operator(entry.operator), routines=tuple(map(other_routine, entry.routines)))
        for entry in table
    )


@cache
def other_operator(operator: Operator) -> Operator:
    """The operator under another name; so is all that it lowers to."""
    lower = operator.lower
    return replace(
        operator,
        name=other(operator.name),
        lower=None if lower is None else lambda arguments, attributes: other_program(lower(arguments, attributes)),
    )


@cache
def other_routine(routine: Routine) -> Routine:
    """The routine and its reference under another name. The reference's buffers are in the kernel's text, and stay."""

    def reference(arguments: tuple[Annotation, ...], attributes: Mapping[str, Any]) -> Program:
        program = routine.reference(arguments, attributes)
        return replace(program, name=other(program.name))

    return replace(routine, name=other(routine.name), reference=reference)


def other_program(program: Program) -> Program:
    """The program, its buffers, its loops and its symbols under other names."""
    buffers = (*program.inputs, *program.outputs, *program.locals)
    names = {b.name: other(b.name) for b in buffers}

    def buffer(b: Buffer) -> Buffer:
        return Buffer(names[b.name], tuple(map(other_dimension, b.shape)), b.dtype)

    def axes(given: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(other_variable(a.var), other_dimension(a.extent)) for a in given)

    def stage(s: Stage) -> Stage:
        indices = tuple(rename_index(index, names) for index in s.indices)
        used = {v for index in indices for v in variables(index)}.union(*map(scalar_variables, s.values))
        used |= {a.var for a in (*s.spatial, *s.reduce)}
        symbols: dict[Expr, Expr | int] = {v: other_variable(v) for v in used}
        return Stage(
            tuple(names[o] for o in s.outputs),
            axes(s.spatial),
            tuple(substitute(index, symbols) for index in indices),
            tuple(rename_scalar(value, names, symbols) for value in s.values),
            axes(s.reduce),
            s.reducer,
        )

    return Program(
        other(program.name),
        tuple(map(buffer, program.inputs)),
        tuple(map(buffer, program.outputs)),
        tuple(map(stage, program.stages)),
        tuple(map(buffer, program.locals)),
        tuple(map(other_variable, program.symbols)),
        tuple((names[a], names[b]) for a, b in program.in_place),
    )


def other_variable(var: Var) -> Var:
    return Var(other(var.name), var.lower, var.upper)


def other_dimension(expr: Expr) -> Expr:
    return substitute(expr, {v: other_variable(v) for v in variables(expr)})


def other_annotation(annotation: Annotation) -> Annotation:
    return map_dimensions(annotation, {v: other_variable(v) for v in annotation_variables(annotation)})


def other_module(module: Module) -> Module:
    """The functions, their parameters, values, weights and variables under other names; operators stay.

    For modules of calls of operators, without functions that call each other.
    """
    assert not module.programs
    functions = [_other_function(f) for f in module.functions.values()]
    return Module({f.name: f for f in functions})


def _other_function(function: Function) -> Function:
    def name(given: Name) -> Name:
        return Name(other(given.name), other_annotation(given.annotation))

    def atom(given: Atom) -> Atom:
        match given:
            case Name():
                return name(given)
            case Constant(weight, annotation):
                return Constant(other(weight), annotation)
            case ShapeValue(dims):
                return ShapeValue(tuple(map(other_dimension, dims)))
        raise TypeError(f"{given} is called, which is not renamed")

    bindings = tuple(Binding(name(b.name), map_atoms(b.value, atom)) for b in function.body.bindings)
    return replace(
        function,
        name=other(function.name),
        params=tuple(map(name, function.params)),
        body=Block(bindings, atom(function.body.result)),
        result=other_annotation(function.result),
        requires=tuple((other_dimension(a), other_dimension(b)) for a, b in function.requires),
    )


def assert_same_but_for_names(first: str, second: str) -> None:
    """Two texts differ in names alone, one for one, in each paragraph; the numbers that keep names apart may differ."""
    for one, two in zip(first.split("\n\n"), second.split("\n\n"), strict=True):
        words = [re.findall(r"\.?\w+|\W", text) for text in (one, two)]
        assert len(words[0]) == len(words[1]), f"{one}\n{two}"
        pairs = set(zip(*words, strict=True))
        assert [_stem(a) for a, _ in pairs] == [_stem(b) for _, b in pairs], f"{one}\n{two}"
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs), f"{one}\n{two}"


def _stem(word: str) -> str:
    """What the word was before its names were made others, without numbers."""
    return re.sub(r"[a-z](?=[A-Z])|_\d+|^v_", "", word).lower()
