"""Models as Python objects: `Module` holds parameters and other modules, `Value` traces what forward() does.

A parameter's name is its path of attributes (`layers.0.attention.query`). Loading sets each parameter's format;
forward() then reads it through the decode program of that format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..ir import Atom, Constant, FunctionBuilder, Name, Operator, Shape, ShapeValue, Tensor
from ..quantize import FORMATS, BlockFormat, dequantize, packed_words
from ..symbolic import Expr


@dataclass(frozen=True)
class Value:
    """A tensor (or shape) of the function being traced. Operators on it add bindings."""

    graph: FunctionBuilder
    atom: Atom

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The dimensions. Raises ValueError where they are unknown."""
        match self.atom.annotation:
            case Tensor(shape=tuple() as dims) | Shape(dims=tuple() as dims):
                return dims
        raise ValueError(f"the shape of {self.atom} is not known: {self.atom.annotation}")

    def __add__(self, other: Value) -> Value:
        return apply(ops.add, self, other)

    def __mul__(self, other: Value) -> Value:
        return apply(ops.multiply, self, other)

    def reshape(self, *dims: Expr | int) -> Value:
        return apply(ops.reshape, self, Value(self.graph, ShapeValue(Shape(dims).dims or ())))


def apply(operator: Operator, first: Value, *rest: Value, hint: str | None = None, **attributes: Any) -> Value:
    """Binds an operator call in the function that the values belong to."""
    name: Name = first.graph.op(operator, first.atom, *(v.atom for v in rest), hint=hint, **attributes)
    return Value(first.graph, name)


class Parameter:
    """A weight of the given shape (one or two dimensions). `format` says how it is stored; "F32" is plain."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.name = ""
        self.format: BlockFormat = FORMATS["F32"]

    @property
    def rows_columns(self) -> tuple[int, int]:
        """The shape as a matrix; a vector is one row."""
        return (self.shape[0], self.shape[1]) if len(self.shape) == 2 else (1, self.shape[0])

    @property
    def annotation(self) -> Tensor:
        """How the weight is stored: plain f32, or packed words."""
        if self.format.code == "f32":
            return Tensor(self.shape, "f32")
        return Tensor((packed_words(self.format, *self.rows_columns),), "u32")

    def read(self, graph: FunctionBuilder) -> Value:
        """The f32 values in a function being traced."""
        constant = Constant(self.name, self.annotation)
        if self.format.code == "f32":
            return Value(graph, constant)
        rows, columns = self.rows_columns
        packed = Value(graph, constant)
        values = apply(dequantize, packed, format=self.format, rows=rows, columns=columns)
        return values if len(self.shape) == 2 else values.reshape(*self.shape)


class Module:
    """A part of a model. Attributes that are parameters, modules or lists of modules belong to it."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters with their paths, in order of definition; a shared one comes once, under its first path."""
        seen: set[int] = set()
        for path, parameter in self._walk(prefix):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield path, parameter

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for key, item in vars(self).items():
            for path, part in _parts(f"{prefix}{key}", item):
                if isinstance(part, Parameter):
                    yield path, part
                elif isinstance(part, Module):
                    yield from part._walk(f"{path}.")

    def name_parameters(self) -> None:
        """Gives every parameter its path as name."""
        for path, parameter in self.named_parameters():
            parameter.name = path


def _parts(path: str, item: object) -> Iterator[tuple[str, object]]:
    if isinstance(item, list):
        for at, part in enumerate(item):
            yield from _parts(f"{path}.{at}", part)
    else:
        yield path, item


class Linear(Module):
    """y = x W^T, without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.weight = Parameter(outputs, inputs)

    def forward(self, x: Value) -> Value:
        """[.., inputs] -> [.., outputs]."""
        return apply(ops.linear, x, self.weight.read(x.graph))


class Embedding(Module):
    """Rows of a table by id. `project` is the output layer of a model that ties it to its embedding."""

    def __init__(self, rows: int, columns: int) -> None:
        self.weight = Parameter(rows, columns)

    def forward(self, ids: Value) -> Value:
        """i32[n] -> [n, columns]."""
        return apply(ops.take, self.weight.read(ids.graph), ids)

    def project(self, x: Value) -> Value:
        """[n, columns] -> [n, rows]."""
        return apply(ops.linear, x, self.weight.read(x.graph), hint="logits")


class RMSNorm(Module):
    """Root-mean-square normalization over the last dimension (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float) -> None:
        self.weight = Parameter(size)
        self.eps = eps

    def forward(self, x: Value) -> Value:
        return apply(ops.rms_norm, x, self.weight.read(x.graph), eps=self.eps)
