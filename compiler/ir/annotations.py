"""What is known of a value at compile time. Coarser annotations are legal everywhere."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..symbolic import Expr, Var, as_expr, prove_equal, prove_less_equal, substitute, variables

Key = TypeVar("Key", bound=Expr)


class Annotation:
    """Base of the annotations below."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Object(Annotation):
    """Any value."""

    def __str__(self) -> str:
        return "Object"


@dataclass(frozen=True, slots=True, init=False)
class Shape(Annotation):
    """A shape value: its dimensions as expressions, or only their number, or nothing."""

    dims: tuple[Expr, ...] | None
    ndim: int | None

    def __init__(self, dims: Sequence[Expr | int] | None = None, ndim: int | None = None) -> None:
        object.__setattr__(self, "dims", None if dims is None else tuple(map(as_expr, dims)))
        object.__setattr__(self, "ndim", ndim if dims is None else len(dims))

    def __str__(self) -> str:
        if self.dims is not None:
            return f"Shape([{', '.join(map(str, self.dims))}])"
        return "Shape()" if self.ndim is None else f"Shape(ndim={self.ndim})"


@dataclass(frozen=True, slots=True, init=False)
class Tensor(Annotation):
    """A tensor: shape and element type (f32, f16, i32, u32), each possibly unknown."""

    shape: tuple[Expr, ...] | None
    dtype: str | None
    ndim: int | None

    def __init__(
        self, shape: Sequence[Expr | int] | None = None, dtype: str | None = None, ndim: int | None = None
    ) -> None:
        object.__setattr__(self, "shape", None if shape is None else tuple(map(as_expr, shape)))
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "ndim", ndim if shape is None else len(shape))

    def __str__(self) -> str:
        parts = []
        if self.shape is not None:
            inner = ", ".join(map(str, self.shape))
            parts.append(f"({inner},)" if len(self.shape) == 1 else f"({inner})")
        elif self.ndim is not None:
            parts.append(f"ndim={self.ndim}")
        if self.dtype is not None:
            parts.append(f'"{self.dtype}"' if self.shape is not None else f'dtype="{self.dtype}"')
        return f"Tensor({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Tuple(Annotation):
    """A tuple of annotated values."""

    fields: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"Tuple[{', '.join(map(str, self.fields))}]"


@dataclass(frozen=True, slots=True)
class Callable(Annotation):
    """A function value. Each call binds the variables of its parameters anew; they are not those of the caller."""

    params: tuple[Annotation, ...]
    result: Annotation

    def __str__(self) -> str:
        return f"Callable([{', '.join(map(str, self.params))}], {self.result})"


def dimensions(annotation: Annotation) -> Iterator[Expr]:
    """All dimension expressions of an annotation, in order; those inside a Callable are its own."""
    match annotation:
        case Shape(dims) if dims is not None:
            yield from dims
        case Tensor(shape=shape) if shape is not None:
            yield from shape
        case Tuple(fields):
            for field in fields:
                yield from dimensions(field)


def matched_dimensions(pattern: Annotation, given: Annotation) -> Iterator[tuple[Expr, Expr]]:
    """The pairs of dimensions of two annotations that are known on both sides."""
    match pattern, given:
        case (Shape(dims=tuple() as own), Shape(dims=tuple() as other)) | (
            Tensor(shape=tuple() as own),
            Tensor(shape=tuple() as other),
        ):
            yield from zip(own, other, strict=False)
        case Tuple(a), Tuple(b):
            for x, y in zip(a, b, strict=False):
                yield from matched_dimensions(x, y)


def solve(pattern: Annotation, given: Annotation, solved: dict[Var, Expr]) -> None:
    """Binds the variables that stand alone as a dimension of the pattern to the given dimensions."""
    for own, other in matched_dimensions(pattern, given):
        if isinstance(own, Var):
            solved.setdefault(own, other)


def annotation_variables(annotation: Annotation) -> frozenset[Var]:
    """The symbolic variables that occur."""
    return frozenset(v for dim in dimensions(annotation) for v in variables(dim))


def map_dimensions(annotation: Annotation, mapping: Mapping[Key, Expr | int]) -> Annotation:
    """Substitutes symbolic variables, simultaneously."""
    match annotation:
        case Shape(dims) if dims is not None:
            return Shape([substitute(d, mapping) for d in dims])
        case Tensor():
            return map_tensor(annotation, mapping)
        case Tuple(fields):
            return Tuple(tuple(map_dimensions(f, mapping) for f in fields))
    return annotation


def map_tensor(tensor: Tensor, mapping: Mapping[Key, Expr | int]) -> Tensor:
    """`map_dimensions` of a tensor."""
    if tensor.shape is None:
        return tensor
    return Tensor([substitute(d, mapping) for d in tensor.shape], tensor.dtype)


def mentions_only(annotation: Annotation, known: Container[Var]) -> bool:
    """Whether all variables of an annotation are among those known."""
    return all(variable in known for variable in annotation_variables(annotation))


def erase_variables(annotation: Annotation, known: Container[Var]) -> Annotation:
    """Coarsens what mentions a variable outside `known` to its rank."""
    match annotation:
        case Shape(dims) if dims is not None and not mentions_only(annotation, known):
            return Shape(ndim=len(dims))
        case Tensor(shape=shape) if shape is not None and not mentions_only(annotation, known):
            return Tensor(dtype=annotation.dtype, ndim=len(shape))
        case Tuple(fields):
            return Tuple(tuple(erase_variables(f, known) for f in fields))
    return annotation


def _same_dims(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(x == y or prove_equal(x, y) for x, y in zip(a, b, strict=True))


def is_subsumed(finer: Annotation, coarser: Annotation) -> bool:
    """Whether every value of the first annotation is provably one of the second."""
    if finer == coarser:
        return True
    match finer, coarser:
        case _, Object():
            return True
        case Shape(), Shape():
            if coarser.dims is not None:
                return finer.dims is not None and _same_dims(finer.dims, coarser.dims)
            return coarser.ndim is None or finer.ndim == coarser.ndim
        case Tensor(), Tensor():
            if coarser.dtype is not None and finer.dtype != coarser.dtype:
                return False
            if coarser.shape is not None:
                return finer.shape is not None and _same_dims(finer.shape, coarser.shape)
            return coarser.ndim is None or finer.ndim == coarser.ndim
        case Tuple(a), Tuple(b):
            return len(a) == len(b) and all(is_subsumed(x, y) for x, y in zip(a, b, strict=True))
        case Callable(), Callable():
            return _is_function_subsumed(finer, coarser)
    return False


def _is_function_subsumed(finer: Callable, coarser: Callable) -> bool:
    """Whether the first takes whatever the second is called with, and gives what the second promises."""
    if len(finer.params) != len(coarser.params):
        return False
    solved: dict[Var, Expr] = {}
    for own, given in zip(finer.params, coarser.params, strict=True):
        solve(own, given, solved)
    if not all(fits_bounds(variable, value) for variable, value in solved.items()):
        return False
    params = [map_dimensions(own, solved) for own in finer.params]
    result = map_dimensions(erase_variables(finer.result, solved), solved)
    return all(map(is_subsumed, coarser.params, params)) and is_subsumed(result, coarser.result)


def fits_bounds(variable: Var, value: Expr) -> bool:
    """Whether the value provably lies within the variable's bounds."""
    above = variable.lower is None or prove_less_equal(variable.lower, value)
    return above and (variable.upper is None or prove_less_equal(value, variable.upper))


def join(a: Annotation, b: Annotation) -> Annotation:
    """The finest annotation known to hold of both: what an `if` has."""
    match a, b:
        case Shape(), Shape():
            if a.dims is not None and b.dims is not None and _same_dims(a.dims, b.dims):
                return a
            return Shape(ndim=a.ndim if a.ndim == b.ndim else None)
        case Tensor(), Tensor():
            dtype = a.dtype if a.dtype == b.dtype else None
            if a.shape is not None and b.shape is not None and _same_dims(a.shape, b.shape):
                return Tensor(a.shape, dtype)
            return Tensor(dtype=dtype, ndim=a.ndim if a.ndim == b.ndim else None)
        case Tuple(x), Tuple(y) if len(x) == len(y):
            return Tuple(tuple(join(p, q) for p, q in zip(x, y, strict=True)))
        case Callable(), Callable() if a == b:
            return a
    return Object()
