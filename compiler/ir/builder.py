"""Builds graph functions binding by binding, deducing annotations on the way."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable as Function_
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..symbolic import Var
from ..tir import Program
from .annotations import Annotation, Callable, Tensor, annotation_variables, dimensions, erase_variables
from .deduce import deduce
from .expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallFunction,
    CallTIR,
    Function,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    Operator,
    Value,
    all_bindings,
)
from .names import Names


class BlockBuilder:
    """Collects bindings of one block. Names get a number where they would repeat."""

    def __init__(self, names: Names | None = None, variables: ChainMap[Var, None] | None = None) -> None:
        self._names = Names() if names is None else names
        self._variables = ChainMap[Var, None]() if variables is None else variables
        self._bindings: list[Binding] = []

    def fresh(self, hint: str) -> str:
        """An unused name, `hint` itself if it is free."""
        return self._names.fresh(hint)

    def emit(self, value: Value, hint: str = "v") -> Name:
        """Binds a value to a fresh name, annotated by deduction. Raises ValueError where the value is ill-typed."""
        annotation = deduce(value)
        if isinstance(value, If):
            # What an arm binds is not known behind it.
            annotation = erase_variables(annotation, self._variables)
        name = Name(self.fresh(hint), annotation)
        self._bindings.append(Binding(name, value))
        return name

    def op(self, operator: Operator, *args: Atom, hint: str | None = None, **attributes: Any) -> Name:
        """Calls an operator."""
        return self.emit(Call(operator, args, tuple(sorted(attributes.items()))), hint or operator.name)

    def declare(self, annotation: Annotation) -> None:
        """Makes the variables that stand alone as a dimension known from here on."""
        self._variables.update({d: None for d in dimensions(annotation) if isinstance(d, Var)})

    def match_cast(self, value: Atom, annotation: Annotation, hint: str = "cast") -> Name:
        """Asserts a finer annotation, whose new variables it binds."""
        self.declare(annotation)
        return self.emit(MatchCast(value, annotation), hint)

    def make_tuple(self, *fields: Atom, hint: str = "pair") -> Name:
        return self.emit(MakeTuple(fields), hint)

    def get_item(self, value: Atom, index: int, hint: str = "item") -> Name:
        return self.emit(GetItem(value, index), hint)

    def call(self, callee: FunctionRef | Name, *args: Atom, hint: str = "result") -> Name:
        return self.emit(CallFunction(callee, args), hint)

    def arm(self) -> BlockBuilder:
        """A builder for an arm of an `if`, sharing this block's names."""
        return BlockBuilder(self._names, self._variables.new_child())

    def if_else(self, condition: Atom, then: Block, orelse: Block, hint: str = "chosen") -> Name:
        return self.emit(If(condition, then, orelse), hint)

    def block(self, result: Atom) -> Block:
        """The bindings so far, with their result."""
        return Block(tuple(self._bindings), result)


def expand_call(call: Call, names: Names) -> Block:
    """What a call of an operator with `expand` stands for."""
    assert call.op.expand is not None
    builder = BlockBuilder(names)
    return builder.block(call.op.expand(builder, call.args, dict(call.attributes)))


def splice(binding: Binding, block: Block) -> tuple[Binding, ...]:
    """The bindings of a block, of which the last one binds the block's result to the name of the given binding."""
    if block.bindings and block.bindings[-1].name == block.result:
        return (*block.bindings[:-1], replace(block.bindings[-1], name=binding.name))
    return (*block.bindings, Binding(binding.name, block.result))


def rewrite_bindings(block: Block, change: Function_[[Binding], Iterable[Binding]]) -> Block:
    """The block with each binding replaced by those that `change` gives, in the arms of an `if` too."""
    bindings: list[Binding] = []
    for binding in block.bindings:
        if isinstance(binding.value, If):
            condition, *arms = binding.value.condition, binding.value.then, binding.value.orelse
            then, orelse = (rewrite_bindings(arm, change) for arm in arms)
            bindings.append(replace(binding, value=If(condition, then, orelse)))
        else:
            bindings += change(binding)
    return Block(tuple(bindings), block.result)


def taken_names(function: Function) -> Names:
    """Every name that a function binds, those of symbolic variables included."""
    names = (*function.params, *(b.name for b in all_bindings(function.body)))
    casts = (b.value for b in all_bindings(function.body))
    annotations = (*(n.annotation for n in names), *(c.annotation for c in casts if isinstance(c, MatchCast)))
    return Names([*(n.name for n in names), *(v.name for a in annotations for v in annotation_variables(a))])


class FunctionBuilder(BlockBuilder):
    """A block with parameters: `param`, then bindings, then `finish`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._params: list[Name] = []

    def param(self, name: str, annotation: Annotation) -> Name:
        """Declares a parameter."""
        self.declare(annotation)
        param = Name(self.fresh(name), annotation)
        self._params.append(param)
        return param

    def finish(self, *results: Atom, consumed: Sequence[tuple[int, int]] = ()) -> Function:
        """The function; several results become a tuple. `consumed`: see Function."""
        result = results[0] if len(results) == 1 else self.make_tuple(*results, hint="results")
        return Function(self._name, tuple(self._params), self.block(result), result.annotation, tuple(consumed))


class ModuleBuilder:
    """Collects functions and tensor programs; equal programs are kept once."""

    def __init__(self, module: Module | None = None) -> None:
        self._base = module or Module({})
        self.functions: dict[str, Function] = dict(self._base.functions)
        self.programs: dict[str, Program] = dict(self._base.programs)
        self._known = {_anonymous(p): name for name, p in self.programs.items()}
        self._names = Names(self.programs)

    def add_function(self, function: Function) -> FunctionRef:
        """Adds or replaces a function and returns a reference that calls it."""
        self.functions[function.name] = function
        return reference(function)

    def add_program(self, program: Program) -> str:
        """The name of this program in the module: an equal one's, or a fresh one."""
        key = _anonymous(program)
        if key not in self._known:
            name = self._known[key] = self._names.fresh(program.name)
            self.programs[name] = replace(program, name=name)
        return self._known[key]

    def call_tir(self, program: Program, args: Sequence[Atom]) -> CallTIR:
        """A call whose shapes and symbolic arguments are the program's own variables."""
        outputs = tuple(Tensor(b.shape, b.dtype) for b in program.outputs)
        return CallTIR(self.add_program(program), tuple(args), outputs, program.symbols)

    def finish(self) -> Module:
        """The module so far."""
        return replace(self._base, functions=self.functions, programs=self.programs)


def reference(function: Function) -> FunctionRef:
    """A function value with its signature."""
    return FunctionRef(function.name, Callable(tuple(p.annotation for p in function.params), function.result))


def _anonymous(program: Program) -> Program:
    return replace(program, name="")
