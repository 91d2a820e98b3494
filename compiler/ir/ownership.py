"""Which memory each name stands for and where it is overwritten: what makes writing in place safe."""

from __future__ import annotations

from collections.abc import Mapping

from ..tir import Program
from .expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Function,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    TensorToShape,
    Value,
    all_bindings,
    atoms,
)

Memory = frozenset[str] | tuple["Memory", ...]
"""The origins of a tensor: parameters, or results of calls that got fresh memory. A tuple has those of its fields."""

NOTHING: frozenset[str] = frozenset()


def origins(memory: Memory) -> frozenset[str]:
    """All origins, those of a tuple's fields together."""
    return memory if isinstance(memory, frozenset) else NOTHING.union(*map(origins, memory))


class Ownership:
    """The analysis of one function: `of` each name, `result` of the function, and what each binding `writes`.

    `results` has those of other functions of the module, so that analyses which share it look at each function once.
    """

    def __init__(self, module: Module, function: Function, results: dict[str, Memory | None] | None = None) -> None:
        self.of: dict[str, Memory] = {p.name: frozenset({p.name}) for p in function.params}
        self.writes: dict[str, frozenset[str]] = {}
        self._module, self._results = module, {} if results is None else results
        self._results.setdefault(function.name)  # None: it is not known yet what a call of itself gives
        self._block(function.body)
        self.result = self._results[function.name] = self.memory(function.body.result)

    def memory(self, atom: Atom) -> Memory:
        """The origins of an atom. Weights, shapes and functions have none: nothing may overwrite them."""
        return self.of.get(atom.name, NOTHING) if isinstance(atom, Name) else NOTHING

    def written(self) -> frozenset[str]:
        """Everything that the function overwrites."""
        return NOTHING.union(*self.writes.values())

    def _block(self, block: Block) -> None:
        for binding in block.bindings:
            name, value = binding.name.name, binding.value
            if isinstance(value, If):
                self._block(value.then)
                self._block(value.orelse)
                arms = (*all_bindings(value.then), *all_bindings(value.orelse))
                self.writes[name] = NOTHING.union(*(self.writes[b.name.name] for b in arms))
            else:
                overwritten = (self.memory(value_args(value)[at]) for at in overwritten_arguments(self._module, value))
                self.writes[name] = NOTHING.union(*map(origins, overwritten))
            self.of[name] = self._value(binding)

    def _value(self, binding: Binding) -> Memory:
        name, value = binding.name.name, binding.value
        match value:
            case Call(op, args):
                carried = [origins(self.memory(args[at])) for at in op.overwrites]
                return NOTHING.union(*carried) if carried else frozenset({name})
            case CallTIR(program=program, args=args) | CallLibrary(program=program, args=args) if program:
                return self._outputs(name, self._module.programs.get(program), args)
            case CallLibrary(outputs=outputs):
                fresh = tuple(frozenset({f"{name}.{at}"}) for at in range(len(outputs)))
                return fresh[0] if len(fresh) == 1 else fresh
            case CallFunction(callee, args):
                return self._called(name, callee, args)
            case MakeTuple(fields):
                return tuple(self.memory(f) for f in fields)
            case GetItem(inner, index):
                memory = self.memory(inner)
                return memory[index] if isinstance(memory, tuple) and index < len(memory) else origins(memory)
            case If(_, then, orelse):
                return _either(self.memory(then.result), self.memory(orelse.result))
            case MatchCast(inner, _):
                return self.memory(inner)
            case TensorToShape():
                return NOTHING
        (atom,) = atoms(value)
        return self.memory(atom)

    def _outputs(self, name: str, program: Program | None, args: tuple[Atom, ...]) -> Memory:
        if program is None:
            return NOTHING
        sources, given = dict(program.in_place), dict(zip((b.name for b in program.inputs), args, strict=False))
        memories: list[Memory] = []
        for at, buffer in enumerate(program.outputs):
            source = given.get(sources[buffer.name]) if buffer.name in sources else None
            memories.append(origins(self.memory(source)) if source else frozenset({f"{name}.{at}"}))
        return memories[0] if len(memories) == 1 else tuple(memories)

    def _called(self, name: str, callee: FunctionRef | Name, args: tuple[Atom, ...]) -> Memory:
        """The callee's result, its parameters replaced by the arguments; any of these where the callee is unknown."""
        function = self._module.functions.get(callee.name) if isinstance(callee, FunctionRef) else None
        if function is not None and function.name not in self._results:
            Ownership(self._module, function, self._results)
        result = self._results[function.name] if function is not None else None
        if function is None or result is None or len(function.params) != len(args):
            return frozenset({name}).union(*(origins(self.memory(a)) for a in args))
        given = {p.name: origins(self.memory(a)) for p, a in zip(function.params, args, strict=True)}

        def replaced(memory: Memory) -> Memory:
            if isinstance(memory, tuple):
                return tuple(map(replaced, memory))
            return NOTHING.union(*(given.get(origin, frozenset({f"{name}.{origin}"})) for origin in memory))

        return replaced(result)


def value_args(value: Value) -> tuple[Atom, ...]:
    """What a value is called with; for anything but a call, what it reads."""
    return value.args if isinstance(value, Call | CallTIR | CallLibrary | CallFunction) else atoms(value)


def overwritten_arguments(module: Module, value: Value) -> tuple[int, ...]:
    """The positions in `value_args` whose memory a call overwrites."""
    match value:
        case Call(op):
            return op.overwrites
        case CallTIR(program=name) | CallLibrary(program=name) if name in module.programs:
            return overwritten_inputs(module.programs[name])
        case CallFunction(FunctionRef(name)) if name in module.functions:
            return tuple(param for param, _ in module.functions[name].consumed)
    return ()


def overwritten_inputs(program: Program) -> tuple[int, ...]:
    """The positions of the inputs whose memory a program overwrites."""
    positions: Mapping[str, int] = {b.name: at for at, b in enumerate(program.inputs)}
    return tuple(positions[source] for _, source in program.in_place if source in positions)


def _either(a: Memory, b: Memory) -> Memory:
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(_either, a, b))
    return origins(a) | origins(b)
