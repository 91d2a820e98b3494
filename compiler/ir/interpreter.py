"""Runs a module on NumPy arrays, at any point of the pipeline.

Before memory is planned every result gets an array of its own. A planned function runs inside real byte storages, whose
contents are poisoned when a tensor dies, so that a wrong plan shows in the values.
"""

from __future__ import annotations

from collections.abc import Callable as Function_
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..symbolic import Expr, Var, as_expr, evaluate
from ..tir import Program
from ..tir.interpreter import NUMPY_DTYPES, ConstantCache, execute
from .annotations import Annotation, Callable, Shape, Tensor, Tuple, is_subsumed
from .builder import expand_call, reference
from .expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Constant,
    Function,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    Place,
    ShapeValue,
    TensorToShape,
    Value,
    all_bindings,
)
from .liveness import tensor_lives
from .names import Names

Array = np.ndarray[Any, Any]
Routine = Function_[..., Array]
POISON = 0xA5


class ShapeMismatch(ValueError):
    """A run-time shape check failed: the message names function, value, dimension, expected and actual."""


class Interpreter:
    """Executes graph functions.

    `weights` gives the arrays of the constants. With `remember_constants`, what is decoded from read-only ones is kept.
    `routines` gives NumPy functions for library calls; without one, the call's tensor program runs.
    """

    def __init__(
        self,
        module: Module,
        weights: Mapping[str, Array] | None = None,
        routines: Mapping[str, Routine] | None = None,
        remember_constants: bool = False,
    ) -> None:
        self.module, self.weights, self.routines = module, weights or {}, routines or {}
        self.cache = ConstantCache() if remember_constants else None
        self.storages = {n: np.full(s, POISON, np.uint8) for n, s in module.storages.items() if isinstance(s, int)}
        self._deaths: dict[str, Mapping[str, Sequence[Place]]] = {}

    def call(self, name: str, *args: Any) -> Any:
        """Runs a function on arrays (tensors), tuples of ints (shapes) and function names.

        Consumed arrays are overwritten. Raises ShapeMismatch where an argument is not what the signature says.
        """
        return self.function(self.module.functions[name], args)

    def function(self, function: Function, args: Sequence[Any]) -> Any:
        """Checks the arguments and runs the body."""
        if len(args) != len(function.params):
            raise ShapeMismatch(f"{function.name} takes {len(function.params)} arguments, got {len(args)}")
        frame = _Frame(self, function)
        frame.match([(p.name, p.annotation, arg) for p, arg in zip(function.params, args, strict=True)])
        frame.values.update((p.name, arg) for p, arg in zip(function.params, args, strict=True))
        for left, right in function.requires:
            if evaluate(left, frame.env) > evaluate(right, frame.env):
                values = f"{left} = {evaluate(left, frame.env)}"
                raise ShapeMismatch(f"{function.name}: {values} is more than {right} = {evaluate(right, frame.env)}")
        return frame.block(function.body)

    def deaths(self, function: Function) -> Mapping[str, Sequence[Place]]:
        """For each binding of a planned function the places whose tensor it is the last to read."""
        if function.name not in self._deaths:
            self._deaths[function.name] = _deaths(self.module, function)
        return self._deaths[function.name]


class _Frame:
    """One call of a function: its values, and those of its symbolic variables."""

    def __init__(self, owner: Interpreter, function: Function) -> None:
        self.owner, self.function = owner, function
        self.values: dict[str, Any] = {}
        self.env: dict[Var, int] = {}
        self.blocks: dict[str, Array] = {}

    def match(self, given: Sequence[tuple[str, Annotation, Any]]) -> None:
        """Checks named values against annotations, binding variables that stand alone."""
        dims = [found for what, annotation, value in given for found in self._dimensions(annotation, value, what)]
        for _, dim, actual in dims:
            if isinstance(dim, Var):
                self.env.setdefault(dim, actual)
        for what, dim, actual in dims:
            expected = evaluate(dim, self.env)
            if expected != actual:
                raise ShapeMismatch(f"{self.function.name}: {what}: expected {dim} = {expected}, got {actual}")
            low, high = (dim.lower, dim.upper) if isinstance(dim, Var) else (None, None)
            if (low is not None and actual < low) or (high is not None and actual > high):
                raise ShapeMismatch(f"{self.function.name}: {what}: {dim} = {actual} is outside {low}..{high}")

    def _dimensions(self, annotation: Annotation, value: Any, what: str) -> Iterator[tuple[str, Expr, int]]:
        """Checks all but the dimensions, which it gives as (where, expected, actual)."""
        match annotation:
            case Tensor(shape, dtype, ndim):
                self._same(dtype and NUMPY_DTYPES[dtype], value.dtype, f"{what}: expected {dtype}")
                self._same(ndim, value.ndim, f"{what}: expected rank {ndim}")
                yield from _numbered(what, shape or (), value.shape)
            case Shape(dims, ndim):
                self._same(ndim, len(value), f"{what}: expected rank {ndim}")
                yield from _numbered(what, dims or (), value)
            case Tuple(fields):
                self._same(len(fields), len(value), f"{what}: expected {len(fields)} fields")
                for at, (field, item) in enumerate(zip(fields, value, strict=True)):
                    yield from self._dimensions(field, item, f"{what}[{at}]")
            case Callable():
                actual = reference(self.owner.module.functions[value]).annotation
                if not is_subsumed(actual, annotation):
                    raise ShapeMismatch(f"{self.function.name}: {what}: expected {annotation}, got {actual}")

    def _same(self, expected: object, actual: object, message: str) -> None:
        if expected is not None and expected != actual:
            raise ShapeMismatch(f"{self.function.name}: {message}, got {actual}")

    def block(self, block: Block) -> Any:
        dies = self.owner.deaths(self.function)
        for binding in block.bindings:
            self.values[binding.name.name] = self.value(binding, binding.value)
            for place in dies.get(binding.name.name, ()):
                self.bytes(place)[...] = POISON
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
                if op.expand is not None:
                    return self.block(expand_call(value, Names([*self.values, *(v.name for v in self.env)])))
                if op.lower is None:
                    raise NotImplementedError(f"{op.name} has no lowering to a tensor program")
                program = op.lower(tuple(a.annotation for a in args), dict(attributes))
                tensors = [self.atom(a) for a in args if isinstance(a.annotation, Tensor)]
                return self.program(program, tensors, program.symbols, binding)
            case CallLibrary(routine, args, outputs) if routine in self.owner.routines or not value.program:
                result = self.owner.routines[routine](*map(self.atom, args))
                self.match([(routine, outputs[0] if len(outputs) == 1 else Tuple(outputs), result)])
                return result
            case CallTIR(program=name, args=args) | CallLibrary(program=name, args=args):
                program = self.owner.module.programs[name]
                return self.program(program, [self.atom(a) for a in args], value.sym_args, binding)
            case CallFunction(callee, args):
                name = callee.name if isinstance(callee, FunctionRef) else self.values[callee.name]
                return self.owner.call(name, *map(self.atom, args))
            case MakeTuple(fields):
                return tuple(map(self.atom, fields))
            case GetItem(inner, index):
                return self.atom(inner)[index]
            case MatchCast(inner, annotation, about):
                result = self.atom(inner)
                self.match([(about or binding.name.name, annotation, result)])
                return result
            case TensorToShape(inner):
                return tuple(self.atom(inner).tolist())
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
        """The view of a place; results, which are not in a storage of the module, get fresh arrays."""
        if place.storage not in self.owner.module.storages:
            return np.empty(shape, NUMPY_DTYPES[dtype])
        size = int(np.prod(shape)) * NUMPY_DTYPES[dtype].itemsize
        raw = self.bytes(place)
        if size > raw.size:
            raise ShapeMismatch(f"{self.function.name}: {shape} {dtype} does not fit into {place}")
        return raw[:size].view(NUMPY_DTYPES[dtype]).reshape(shape)

    def bytes(self, place: Place) -> Array:
        """A place; a storage whose size is an expression belongs to this call, and is allocated by its first use."""
        size = self.owner.module.storages[place.storage]
        if isinstance(size, Expr) and place.storage not in self.blocks:
            self.blocks[place.storage] = np.full(evaluate(size, self.env), POISON, np.uint8)
        storage = self.owner.storages[place.storage] if isinstance(size, int) else self.blocks[place.storage]
        return storage[place.offset : place.offset + evaluate(as_expr(place.size), self.env)]


def _numbered(what: str, expected: Sequence[Expr], actual: Sequence[int]) -> Iterator[tuple[str, Expr, int]]:
    for at, (dim, size) in enumerate(zip(expected, actual, strict=False)):
        yield f"{what}, dimension {at}", dim, size


def _deaths(module: Module, function: Function) -> Mapping[str, Sequence[Place]]:
    if not any(binding.places for binding in all_bindings(function.body)):
        return {}
    lives = tensor_lives(module, function)
    places = [place for binding in lives.order for place in binding.places]
    deaths: dict[str, list[Place]] = {}
    for tensor, place in zip(lives.sizes, places, strict=True):
        if lives.dies[tensor] < lives.end:
            deaths.setdefault(lives.order[lives.dies[tensor]].name.name, []).append(place)
    return deaths
