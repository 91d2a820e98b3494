"""What a run of a planned module does to memory, by definition: follows the control flow and the tensors' identities.

It shares nothing with the planner's own analysis: a tensor lives from the call that makes it to the last call of the
run that touches the same object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

from webrelax.compiler.ir import (
    Annotation,
    Atom,
    Binding,
    Block,
    CallFunction,
    CallLibrary,
    CallTIR,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    Place,
    Shape,
    ShapeValue,
    Tensor,
    Tuple,
)
from webrelax.compiler.symbolic import Expr, Var, as_expr, evaluate
from webrelax.compiler.target import WEBGPU

Storage = tuple[int, str]


@dataclass(eq=False)
class Traced:
    """A tensor of a run. `storage` is None outside the plan; `value` is what a condition holds."""

    name: str
    shape: tuple[int, ...]
    value: int = 0
    storage: Storage | None = None
    offset: int = 0
    born: int = 0
    last: int = 0

    @property
    def bytes(self) -> int:
        return 4 * prod(self.shape)


class Trace:
    """Runs functions on `Traced` tensors and collects the tensors that they make, and the calls of programs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.tensors: list[Traced] = []
        self.calls: list[tuple[str, list[Traced], list[Traced]]] = []
        self.frames = 0

    def run(self, name: str, args: Sequence[Any]) -> None:
        """Runs a function; what it returns is read at the end."""
        result = self.function(name, args)
        for tensor in _leaves(result):
            tensor.last = len(self.calls) + 1

    def function(self, name: str, args: Sequence[Any]) -> Any:
        self.frames += 1
        frame = _Frame(self, self.frames)
        for param, arg in zip(self.module.functions[name].params, args, strict=True):
            frame.match(param.annotation, arg)
            frame.values[param.name] = arg
        return frame.block(self.module.functions[name].body)

    def check(self) -> None:
        """No two tensors that live at once overlap; no call reads from a storage that it writes to."""
        for a, b in combinations(self.tensors, 2):
            if a.storage is not None and a.storage == b.storage and a.born <= b.last and b.born <= a.last:
                apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
                assert apart or 0 in (a.bytes, b.bytes), f"{a} and {b} overlap"
        for name, read, written in self.calls:
            shared = {t.storage for t in read} & {t.storage for t in written} - {None}
            assert not shared, f"{name} reads and writes {shared}"


class _Frame:
    def __init__(self, trace: Trace, number: int) -> None:
        self.trace, self.number = trace, number
        self.values: dict[str, Any] = {}
        self.env: dict[Var, int] = {}

    def match(self, annotation: Annotation, value: Any) -> None:
        match annotation:
            case Tensor(shape=tuple() as dims):
                pairs = zip(dims, value.shape, strict=True)
            case Shape(dims=tuple() as dims):
                pairs = zip(dims, value, strict=True)
            case Tuple(fields):
                for field, item in zip(fields, value, strict=True):
                    self.match(field, item)
                return
            case _:
                return
        self.env.update({dim: size for dim, size in pairs if isinstance(dim, Var)})

    def block(self, block: Block) -> Any:
        for binding in block.bindings:
            self.values[binding.name.name] = self.value(binding)
        return self.atom(block.result)

    def atom(self, atom: Atom) -> Any:
        match atom:
            case Name(name):
                return self.values[name]
            case ShapeValue(dims):
                return tuple(evaluate(d, self.env) for d in dims)
            case FunctionRef(name):
                return name
        return Traced(atom.name, ())

    def value(self, binding: Binding) -> Any:
        match binding.value:
            case CallTIR() | CallLibrary() as call:
                return self.call(binding, call)
            case CallFunction(callee, args):
                return self.trace.function(
                    callee.name if isinstance(callee, FunctionRef) else self.values[callee.name],
                    [self.atom(a) for a in args],
                )
            case MakeTuple(fields):
                return tuple(self.atom(f) for f in fields)
            case GetItem(inner, index):
                return self.atom(inner)[index]
            case MatchCast(inner, annotation):
                value = self.atom(inner)
                self.match(annotation, value)
                return value
            case If(condition, then, orelse):
                return self.block(then if self.atom(condition).value else orelse)
        assert isinstance(binding.value, Name)
        return self.atom(binding.value)

    def call(self, binding: Binding, call: CallTIR | CallLibrary) -> Any:
        time = len(self.trace.calls) + 1
        program = self.trace.module.programs[call.program]
        symbols = {s: evaluate(e, self.env) for s, e in zip(program.symbols, call.sym_args, strict=True)}
        given = {b.name: self.atom(a) for b, a in zip(program.inputs, call.args, strict=True)}
        places, overwritten = list(binding.places), dict(program.in_place)
        written = []
        for buffer in program.outputs:
            if buffer.name in overwritten:
                written.append(given.pop(overwritten[buffer.name]))
                continue
            made = Traced(binding.name.name, tuple(evaluate(e, symbols) for e in buffer.shape), born=time)
            # A function that may call itself has no plan.
            if binding.places:
                self.put(made, places.pop(0))
            self.trace.tensors.append(made)
            written.append(made)
        assert not places
        for tensor in (*given.values(), *written):
            tensor.last = time
        self.trace.calls.append((binding.name.name, list(given.values()), written))
        return written[0] if len(written) == 1 else tuple(written)

    def put(self, tensor: Traced, place: Place) -> None:
        size = self.size(place.size)
        assert tensor.bytes <= size, f"{tensor} does not fit into {place}"
        if place.storage not in self.trace.module.storages:
            return
        whole = self.trace.module.storages[place.storage]
        tensor.storage = (0 if isinstance(whole, int) else self.number, place.storage)
        tensor.offset = place.offset
        assert place.offset % WEBGPU.offset_alignment == 0
        assert place.offset + size <= self.size(whole), f"{place} is not inside its storage"

    def size(self, size: int | Expr) -> int:
        return evaluate(as_expr(size), self.env)


def _leaves(value: Any) -> list[Traced]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value] if isinstance(value, Traced) else []
