"""The well-formedness check: what must hold of a module after every pass."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from typing import NoReturn

from ..symbolic import Expr, Var, prove_equal, substitute, variables
from ..tir import Program, free_symbols
from .annotations import Annotation, Tensor, dimensions, is_subsumed
from .builder import reference
from .deduce import deduce
from .expr import (
    Atom,
    Block,
    CallLibrary,
    CallTIR,
    Constant,
    Function,
    FunctionRef,
    If,
    MatchCast,
    Module,
    Name,
    ProgramCall,
    ShapeValue,
    Value,
    atoms,
    calls_program,
)
from .ownership import Memory, Ownership, origins, overwritten_arguments, value_args


class IllFormed(ValueError):
    """A module breaks an invariant: a bug of the pass that made it."""


def verify(module: Module) -> None:
    """Raises IllFormed, naming function and binding, unless the module is well-formed and fully annotated.

    Names are bound once and before use; symbolic variables are bound by parameters or a match_cast before use;
    deduction agrees with every annotation; programs exist, fit their arguments and know their symbols; a function
    declares what it overwrites, and nothing reads memory by a name from before it was overwritten.
    """
    for name, program in module.programs.items():
        _check(name == program.name, f"program {program.name} is listed as {name}")
        verify_program(program)
    results: dict[str, Memory | None] = {}
    for name, function in module.functions.items():
        _check(name == function.name, f"function {function.name} is listed as {name}")
        _FunctionCheck(module, function, Ownership(module, function, results)).run()


def verify_program(program: Program) -> None:
    """Raises IllFormed unless loads and stores name buffers that exist, at their rank, and all symbols are declared."""
    where = program.name
    buffers = (*program.inputs, *program.outputs, *program.locals)
    ranks = {b.name: len(b.shape) for b in buffers}
    _check(len(ranks) == len(buffers), f"{where}: a buffer name repeats")
    missing = [v.name for v in free_symbols(program) if v not in program.symbols]
    _check(not missing, f"{where} does not declare {', '.join(missing)}")
    symbols = {v.name for b in buffers for extent in b.shape for v in variables(extent)}
    written: set[str] = set()
    readable = {b.name for b in program.inputs}
    sources = dict(program.in_place)
    for stage in program.stages:
        for axis in (*stage.spatial, *stage.reduce):
            _check(axis.var.name not in symbols, f"{where}: {axis.var.name} names both a loop and a shape variable")
        for load in stage.loads():
            _check(load.buffer in readable | written, f"{where} reads {load.buffer} before it is written")
            _check(len(load.indices) == ranks[load.buffer], f"{where}: {load} has the wrong rank")
            # The points of a stage run in any order.
            safe = load.indices == stage.indices or load.buffer not in map(sources.get, stage.outputs)
            _check(safe, f"{where} reads {load} while overwriting {load.buffer}")
        for output in stage.outputs:
            _check(output in ranks.keys() - readable, f"{where} writes {output}, which is no output or local")
            _check(len(stage.indices) == ranks[output], f"{where} stores to {output} with the wrong rank")
            written.add(output)
    for buffer in program.outputs:
        _check(buffer.name in written, f"{where} never writes {buffer.name}")
    for output, source in program.in_place:
        fits = source in readable and program.buffer(output).shape == program.buffer(source).shape
        _check(fits, f"{where}: {output} cannot overwrite {source}")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise IllFormed(message)


class _FunctionCheck:
    def __init__(self, module: Module, function: Function, ownership: Ownership) -> None:
        self.module, self.function, self.ownership = module, function, ownership
        self.taken: set[str] = set()
        # What is known at the current binding; the arms of an `if` add to maps of their own.
        self.scope: ChainMap[str, Annotation] = ChainMap()
        self.variables: ChainMap[str, Var] = ChainMap()
        # The names of each memory since it was overwritten last; those from before.
        self.holders: ChainMap[str, list[str]] = ChainMap()
        self.overwritten: ChainMap[str, None] = ChainMap()

    def fail(self, where: str, message: str) -> NoReturn:
        raise IllFormed(f"{self.function.name}: {where}: {message}")

    def run(self) -> None:
        function = self.function
        for param in function.params:
            self.bind(param)
            self.declare(param.annotation)
        for param in function.params:
            self.need(param.name, param.annotation)
        for pair in function.requires:
            self.need_variables("requires", pair)
        self.block(function.body)
        result = function.body.result.annotation
        if not is_subsumed(result, function.result):
            self.fail("result", f"{result} is not {function.result}")
        self.consumed_parameters()

    def consumed_parameters(self) -> None:
        """The signature says which parameters are overwritten, and which result carries each on."""
        function, written = self.function, self.ownership.written()
        declared = {function.params[param].name: result for param, result in function.consumed}
        for param in function.params:
            if param.name in written and param.name not in declared:
                self.fail(param.name, "is overwritten, but not declared as consumed")
        for name, result in declared.items():
            if name not in written:
                self.fail(name, "is declared as consumed but nothing overwrites it")
            if name not in origins(_field(self.ownership.result, result)):
                self.fail(name, f"is consumed, but result {result} does not carry it on")

    def bind(self, name: Name) -> None:
        if name.name in self.taken:
            self.fail(name.name, "is bound twice")
        self.taken.add(name.name)
        self.scope[name.name] = name.annotation
        for origin in origins(self.ownership.of[name.name]):
            self.holders.setdefault(origin, []).append(name.name)

    def declare(self, annotation: Annotation) -> None:
        for variable in dimensions(annotation):
            if isinstance(variable, Var) and self.variables.setdefault(variable.name, variable) != variable:
                self.fail(variable.name, "is used with two different bounds")

    def need(self, where: str, annotation: Annotation) -> None:
        self.need_variables(where, dimensions(annotation))

    def need_variables(self, where: str, exprs: Iterable[Expr]) -> None:
        for variable in (v for expr in exprs for v in variables(expr)):
            if self.variables.get(variable.name) != variable:
                self.fail(where, f"uses {variable.name}, which nothing binds before")

    def block(self, block: Block) -> None:
        for binding in block.bindings:
            where, value = binding.name.name, binding.value
            for atom in atoms(value):
                self.atom(where, atom)
            self.value(where, value)
            try:
                deduced = deduce(value)
            except ValueError as error:
                self.fail(where, str(error))
            if not is_subsumed(deduced, binding.name.annotation):
                self.fail(where, f"is annotated {binding.name.annotation}, but is {deduced}")
            self.need(where, binding.name.annotation)
            self.overwrite(where, value)
            self.bind(binding.name)
        self.atom("result", block.result)

    def atom(self, where: str, atom: Atom) -> None:
        match atom:
            case Name(name, annotation):
                if name not in self.scope:
                    self.fail(where, f"uses {name} before it is bound")
                if self.scope[name] != annotation:
                    self.fail(where, f"uses {name} as {annotation}, it is {self.scope[name]}")
                if name in self.overwritten:
                    self.fail(where, f"uses {name}, which was overwritten")
            case FunctionRef(name, annotation):
                if name not in self.module.functions:
                    self.fail(where, f"names a function {name} that does not exist")
                actual = reference(self.module.functions[name]).annotation
                if not is_subsumed(actual, annotation):
                    self.fail(where, f"uses {name} as {annotation}, it is {actual}")
            case ShapeValue() | Constant():
                self.need(where, atom.annotation)

    def value(self, where: str, value: Value) -> None:
        match value:
            case MatchCast(_, annotation):
                self.declare(annotation)
                self.need(where, annotation)
            case If(_, then, orelse):
                self.arms(then, orelse)
            case CallTIR() | CallLibrary() if calls_program(value):
                self.call_program(where, value)
        handed_on = value_args(value) if not isinstance(value, FunctionRef) else (value,)
        for atom in handed_on:
            if isinstance(atom, FunctionRef) and self.module.functions[atom.name].consumed:
                self.fail(where, f"hands on {atom}, which overwrites its arguments: that must be called by its name")

    def arms(self, *arms: Block) -> None:
        """Each arm starts from what is known before, and that is all that is known behind them."""
        known = self.scope, self.variables, self.holders, self.overwritten
        for arm in arms:
            self.scope, self.variables = known[0].new_child(), known[1].new_child()
            self.holders, self.overwritten = known[2].new_child(), known[3].new_child()
            self.block(arm)
        self.scope, self.variables, self.holders, self.overwritten = known

    def call_program(self, where: str, call: ProgramCall) -> None:
        program = self.module.programs.get(call.program)
        if program is None:
            self.fail(where, f"calls a program {call.program} that does not exist")
        counts = (len(call.args), len(call.outputs), len(call.sym_args))
        if counts != (len(program.inputs), len(program.outputs), len(program.symbols)):
            self.fail(where, f"gives {program.name} the wrong number of arguments")
        self.need_variables(where, call.sym_args)
        symbols = dict(zip(program.symbols, call.sym_args, strict=True))
        given = [*((a.annotation, False) for a in call.args), *((o, True) for o in call.outputs)]
        for buffer, (annotation, is_output) in zip((*program.inputs, *program.outputs), given, strict=True):
            expected = Tensor([substitute(extent, symbols) for extent in buffer.shape], buffer.dtype)
            if not _fits(annotation, expected, is_output):
                self.fail(where, f"{program.name} has {buffer}, here {expected}, not {annotation}")

    def overwrite(self, where: str, value: Value) -> None:
        args = value_args(value)
        for at in overwritten_arguments(self.module, value):
            memory = origins(self.ownership.memory(args[at]))
            if not memory:
                self.fail(where, f"overwrites {args[at]}, which is not a value of this function")
            for other in (*args[:at], *args[at + 1 :]):
                if origins(self.ownership.memory(other)) & memory:
                    self.fail(where, f"reads {other} while overwriting it")
        for origin in self.ownership.writes[where]:
            self.overwritten.update(dict.fromkeys(self.holders.get(origin, ())))
            self.holders[origin] = []


def _fits(annotation: Annotation, expected: Tensor, is_output: bool) -> bool:
    """Whether a tensor can be a buffer: deduction trusts outputs, the shape of an argument may be known too little."""
    if is_output:
        return is_subsumed(expected, annotation)
    assert expected.shape is not None
    if not isinstance(annotation, Tensor) or (annotation.dtype, annotation.ndim) != (expected.dtype, expected.ndim):
        return False
    return annotation.shape is None or all(map(prove_equal, annotation.shape, expected.shape))


def _field(memory: Memory, index: int) -> Memory:
    if isinstance(memory, tuple):
        return memory[index] if index < len(memory) else frozenset()
    return memory if index == 0 else frozenset()
