"""Runs a module on NumPy arrays, at any point of the pipeline.

Before memory is planned every result gets an array of its own. A planned function runs inside real byte storages, whose
contents are poisoned when a tensor dies, so that a wrong plan shows in the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..symbolic import Expr, Var, evaluate
from ..tir import Program
from ..tir.interpreter import NUMPY_DTYPES, ConstantCache, execute
from .annotations import Annotation, Shape, Tensor, Tuple
from .expr import (
    Atom, Binding, Block, Call, CallFunction, CallLibrary, CallTIR, Constant, Function, FunctionRef, GetItem, If, MakeTuple,
    MatchCast, Module, Name, Place, ShapeValue, Value, atoms,
)  # fmt: skip

Array = np.ndarray[Any, Any]
Routine = Callable[..., Array]
POISON = 0xA5


class ShapeMismatch(ValueError):
    """A run-time shape check failed: the message names function, value, dimension, expected and actual."""


class Interpreter:
    """Executes graph functions.

    `weights` gives the arrays of the constants; mark them read-only to let decoded weights be remembered. `routines` gives
    NumPy functions for library calls.
    """

    def __init__(
        self, module: Module, weights: Mapping[str, Array] | None = None, routines: Mapping[str, Routine] | None = None,
        remember_constants: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.weights, self.routines = module, weights or {}, routines or {}
        self.cache = ConstantCache() if remember_constants else None
        self.storages = {name: np.full(size, POISON, np.uint8) for name, size in module.storages.items()}

    def call(self, name: str, *args: Any) -> Any:
        """Runs a function on arrays (tensors), tuples of ints (shapes) and function names. Consumed arrays are overwritten."""
        return self._function(self.module.functions[name], args)

    def _function(self, function: Function, args: Sequence[Any]) -> Any:
        frame = _Frame(self, function)
        for param, arg in zip(function.params, args, strict=True):
            frame.match(param.annotation, arg, param.name)
            frame.values[param.name] = arg
        for left, right in function.requires:
            if evaluate(left, frame.env) > evaluate(right, frame.env):
                values = f"{left} = {evaluate(left, frame.env)}"
                raise ShapeMismatch(f"{function.name}: {values} is more than {right} = {evaluate(right, frame.env)}")
        return frame.block(function.body)


class _Frame:
    def __init__(self, owner: Interpreter, function: Function) -> None:
        self.owner, self.function = owner, function
        self.values: dict[str, Any] = {}
        self.env: dict[Var, int] = {}

    def match(self, annotation: Annotation, value: Any, what: str) -> None:
        """Checks a value against an annotation, binding variables that stand alone."""
        pairs: list[tuple[Expr, int]] = []
        self._collect(annotation, value, what, pairs)
        for dim, actual in pairs:
            if isinstance(dim, Var):
                self.env.setdefault(dim, actual)
        for at, (dim, actual) in enumerate(pairs):
            expected = evaluate(dim, self.env)
            if expected != actual:
                raise ShapeMismatch(
                    f"{self.function.name}: {what}, dimension {at}: expected {dim} = {expected}, got {actual}"
                )
            if isinstance(dim, Var) and (actual < dim.lower or (dim.upper is not None and actual > dim.upper)):
                raise ShapeMismatch(
                    f"{self.function.name}: {what}, dimension {at}: {dim} = {actual} is outside {dim.lower}..{dim.upper}"
                )

    def _collect(self, annotation: Annotation, value: Any, what: str, pairs: list[tuple[Expr, int]]) -> None:
        match annotation:
            case Tensor(shape, dtype, ndim):
                if dtype is not None and value.dtype != NUMPY_DTYPES[dtype]:
                    raise ShapeMismatch(f"{self.function.name}: {what}: expected {dtype}, got {value.dtype}")
                if ndim is not None and value.ndim != ndim:
                    raise ShapeMismatch(f"{self.function.name}: {what}: expected rank {ndim}, got {value.ndim}")
                pairs.extend(zip(shape or (), value.shape, strict=False))
            case Shape(dims, ndim):
                if ndim is not None and len(value) != ndim:
                    raise ShapeMismatch(f"{self.function.name}: {what}: expected rank {ndim}, got {len(value)}")
                pairs.extend(zip(dims or (), value, strict=False))
            case Tuple(fields):
                for field, item in zip(fields, value, strict=True):
                    self._collect(field, item, what, pairs)

    def block(self, block: Block) -> Any:
        dies = _last_uses(block) if any(b.places for b in block.bindings) else {}
        for at, binding in enumerate(block.bindings):
            self.values[binding.name.name] = self.value(binding, binding.value)
            for place in dies.get(at, ()):
                self.owner.storages[place.storage][place.offset : place.offset + place.size] = POISON
        return self.atom(block.result)

    def atom(self, atom: Atom) -> Any:
        match atom:
            case Name(name):
                return self.values[name]
            case Constant(name):
                return self.owner.weights[name]
            case ShapeValue(dims):
                return tuple(evaluate(d, self.env) for d in dims)
            case FunctionRef(name):
                return name

    def value(self, binding: Binding, value: Value) -> Any:
        match value:
            case Call(op, args, attributes):
                if op.lower is None:
                    raise NotImplementedError(f"{op.name} has no lowering to a tensor program")
                program = op.lower(tuple(a.annotation for a in args), dict(attributes))
                tensors = [self.atom(a) for a in args if isinstance(a.annotation, Tensor)]
                return self.program(program, tensors, program.symbols, binding)
            case CallTIR(name, args, _, sym_args):
                return self.program(self.owner.module.programs[name], [self.atom(a) for a in args], sym_args, binding)
            case CallLibrary(routine, args, outputs):
                result = self.owner.routines[routine](*map(self.atom, args))
                self.match(outputs[0] if len(outputs) == 1 else Tuple(outputs), result, routine)
                return result
            case CallFunction(callee, args):
                name = callee.name if isinstance(callee, FunctionRef) else self.values[callee.name]
                return self.owner._function(self.owner.module.functions[name], [self.atom(a) for a in args])
            case MakeTuple(fields):
                return tuple(map(self.atom, fields))
            case GetItem(inner, index):
                return self.atom(inner)[index]
            case MatchCast(inner, annotation):
                result = self.atom(inner)
                self.match(annotation, result, binding.name.name)
                return result
            case If(condition, then, orelse):
                return self.block(then if int(self.atom(condition).reshape(())) else orelse)
        return self.atom(value)

    def program(self, program: Program, args: list[Array], sym_args: Sequence[Expr], binding: Binding) -> Any:
        symbols = [evaluate(e, self.env) for e in sym_args]
        env = dict(zip(program.symbols, symbols, strict=True))
        sources = dict(program.in_place)
        positions = {b.name: at for at, b in enumerate(program.inputs)}
        outputs = []
        places = list(binding.places)
        for buffer in program.outputs:
            shape = tuple(evaluate(e, env) for e in buffer.shape)
            if buffer.name in sources:
                outputs.append(args[positions[sources[buffer.name]]])
            elif places:
                outputs.append(self.placed(places.pop(0), shape, buffer.dtype))
            else:
                outputs.append(np.empty(shape, NUMPY_DTYPES[buffer.dtype]))
        execute(program, args, outputs, symbols, self.owner.cache)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def placed(self, place: Place, shape: tuple[int, ...], dtype: str) -> Array:
        """The view of a place; results and states, which are not in a storage of the module, get fresh arrays."""
        if place.storage not in self.owner.storages:
            return np.empty(shape, NUMPY_DTYPES[dtype])
        size = int(np.prod(shape)) * NUMPY_DTYPES[dtype].itemsize
        if size > place.size:
            raise ShapeMismatch(f"{self.function.name}: {shape} {dtype} does not fit into {place}")
        raw = self.owner.storages[place.storage][place.offset : place.offset + size]
        return raw.view(NUMPY_DTYPES[dtype]).reshape(shape)


def _last_uses(block: Block) -> dict[int, list[Place]]:
    """For each binding the places whose tensor is read there for the last time; aliases keep a tensor alive."""
    owners: dict[str, set[str]] = {}
    places: dict[str, tuple[Place, ...]] = {}
    last: dict[str, int] = {}
    for at, binding in enumerate(block.bindings):
        used = {o for a in atoms(binding.value) if isinstance(a, Name) for o in owners.get(a.name, ())}
        for owner in used:
            last[owner] = at
        if binding.places:
            places[binding.name.name] = binding.places
            owners[binding.name.name] = {binding.name.name}
            last.setdefault(binding.name.name, at)
        elif not isinstance(binding.value, CallTIR):
            owners[binding.name.name] = used
    kept = owners.get(block.result.name, set()) if isinstance(block.result, Name) else set()
    dies: dict[int, list[Place]] = {}
    for name, at in last.items():
        if name not in kept:
            dies.setdefault(at, []).extend(places[name])
    return dies
