"""The well-formedness check: what must hold of a module after every pass."""

from __future__ import annotations

from collections.abc import Iterable

from ..symbolic import Var
from ..tir import Program, free_symbols
from .annotations import Annotation, Tensor, annotation_variables, is_subsumed
from .deduce import deduce
from .expr import (
    Atom, Block, Call, CallFunction, CallTIR, Constant, Function, FunctionRef, If, MatchCast, Module, Name, ShapeValue, Value, atoms,
)  # fmt: skip


class IllFormed(ValueError):
    """A module breaks an invariant: a bug of the pass that made it."""


def verify(module: Module) -> None:
    """Raises IllFormed, naming function and binding, unless the module is well-formed and fully annotated.

    Names are bound once and before use; symbolic variables are bound by parameters or a match_cast before use; deduction
    agrees with every annotation; programs exist, fit their arguments and know their symbols; a consumed value is not used again.
    """
    for name, program in module.programs.items():
        _check(name == program.name, f"program {program.name} is listed as {name}")
        verify_program(program)
    for name, function in module.functions.items():
        _check(name == function.name, f"function {function.name} is listed as {name}")
        _FunctionCheck(module, function).run()


def verify_program(program: Program) -> None:
    """Raises IllFormed unless every loaded or stored buffer exists with the right rank and every symbol is declared."""
    ranks = {b.name: len(b.shape) for b in (*program.inputs, *program.outputs, *program.locals)}
    _check(
        len(ranks) == len(program.inputs) + len(program.outputs) + len(program.locals),
        f"{program.name}: a buffer name repeats",
    )
    missing = [v.name for v in free_symbols(program) if v not in program.symbols]
    _check(not missing, f"{program.name} does not declare {', '.join(missing)}")
    written: set[str] = set()
    sources = dict(program.in_place)
    readable = {b.name for b in program.inputs}
    for stage in program.stages:
        for load in stage.loads():
            _check(load.buffer in readable | written, f"{program.name} reads {load.buffer} before it is written")
            _check(len(load.indices) == ranks[load.buffer], f"{program.name}: {load} has the wrong rank")
        for output in stage.outputs:
            _check(
                output in ranks and output not in readable,
                f"{program.name} writes {output}, which is no output or local",
            )
            _check(len(stage.indices) == ranks[output], f"{program.name} stores to {output} with the wrong rank")
            written.add(output)
    for buffer in program.outputs:
        _check(buffer.name in written, f"{program.name} never writes {buffer.name}")
    for output, source in sources.items():
        _check(
            source in readable and program.buffer(output).shape == program.buffer(source).shape,
            f"{program.name}: {output} cannot overwrite {source}",
        )


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise IllFormed(message)


class _FunctionCheck:
    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.names: dict[str, Annotation] = {}
        self.variables: dict[str, Var] = {}
        self.consumed: set[str] = set()

    def fail(self, where: str, message: str) -> None:
        raise IllFormed(f"{self.function.name}: {where}: {message}")

    def run(self) -> None:
        for param in self.function.params:
            self.bind(param)
            self.declare(v for d in _own_dims(param.annotation) if isinstance(d, Var) for v in (d,))
        for param in self.function.params:
            self.need(param.name, param.annotation)
        self.block(self.function.body)
        result = self.function.body.result.annotation
        if not is_subsumed(result, self.function.result):
            self.fail("result", f"{result} is not {self.function.result}")
        for index, _ in self.function.consumed:
            if self.function.params[index].name not in self.consumed:
                self.fail(self.function.params[index].name, "is declared as consumed but nothing overwrites it")

    def bind(self, name: Name) -> None:
        if name.name in self.names:
            self.fail(name.name, "is bound twice")
        self.names[name.name] = name.annotation

    def declare(self, variables: Iterable[Var]) -> None:
        for variable in variables:
            known = self.variables.setdefault(variable.name, variable)
            if known != variable:
                self.fail(variable.name, "is used with two different bounds")

    def need(self, where: str, annotation: Annotation) -> None:
        for variable in annotation_variables(annotation):
            if self.variables.get(variable.name) != variable:
                self.fail(where, f"{annotation} uses {variable.name}, which nothing binds before")

    def block(self, block: Block) -> None:
        for binding in block.bindings:
            where = binding.name.name
            for atom in atoms(binding.value):
                self.atom(where, atom)
            if isinstance(binding.value, MatchCast):
                fresh = [d for d in _own_dims(binding.value.annotation) if isinstance(d, Var)]
                self.declare(v for v in fresh if v.name not in self.variables)
            if isinstance(binding.value, If):
                outer = dict(self.names)
                self.block(binding.value.then)
                self.block(binding.value.orelse)
                self.names = outer
            self.value(where, binding.value)
            self.need(where, binding.name.annotation)
            try:
                deduced = deduce(binding.value)
            except ValueError as error:
                self.fail(where, str(error))
            if not is_subsumed(deduced, binding.name.annotation):
                self.fail(where, f"is annotated {binding.name.annotation}, but is {deduced}")
            self.bind(binding.name)
        self.atom("result", block.result)

    def atom(self, where: str, atom: Atom) -> None:
        match atom:
            case Name(name, annotation):
                if name not in self.names:
                    self.fail(where, f"uses {name} before it is bound")
                if self.names[name] != annotation:
                    self.fail(where, f"uses {name} as {annotation}, it is {self.names[name]}")
                if name in self.consumed:
                    self.fail(where, f"uses {name}, which was overwritten")
            case FunctionRef(name):
                if name not in self.module.functions:
                    self.fail(where, f"names a function {name} that does not exist")
            case ShapeValue() | Constant():
                self.need(where, atom.annotation)

    def value(self, where: str, value: Value) -> None:
        if isinstance(value, CallTIR):
            self.call_tir(where, value)
        elif isinstance(value, Call):
            for index in value.op.overwrites:
                self.consume(where, value.args[index])
        elif isinstance(value, CallFunction) and isinstance(value.callee, FunctionRef):
            for index, _ in self.module.functions[value.callee.name].consumed:
                self.consume(where, value.args[index])

    def call_tir(self, where: str, call: CallTIR) -> None:
        program = self.module.programs.get(call.program)
        if program is None:
            self.fail(where, f"calls a program {call.program} that does not exist")
        assert program is not None
        if (len(call.args), len(call.outputs), len(call.sym_args)) != (
            len(program.inputs), len(program.outputs), len(program.symbols),
        ):  # fmt: skip
            self.fail(where, f"gives {program.name} the wrong number of arguments")
        for buffer, atom in zip(program.inputs, call.args, strict=True):
            annotation = atom.annotation
            if (
                not isinstance(annotation, Tensor)
                or annotation.dtype != buffer.dtype
                or annotation.ndim != len(buffer.shape)
            ):
                self.fail(where, f"{program.name} takes {buffer}, not {annotation}")
        for _, source in program.in_place:
            at = [b.name for b in program.inputs].index(source)
            if call.args.count(call.args[at]) > 1:
                self.fail(where, f"reads {call.args[at]} while overwriting it")
            self.consume(where, call.args[at])

    def consume(self, where: str, atom: Atom) -> None:
        if not isinstance(atom, Name):
            self.fail(where, f"overwrites {atom}, which is not a value of this function")
            return
        self.consumed.add(atom.name)


def _own_dims(annotation: Annotation) -> Iterable[object]:
    from .annotations import dimensions

    return dimensions(annotation)
