"""Values of the kernel IR that tir does not have: names, arrays, vectors and matrices."""

from __future__ import annotations

from dataclasses import dataclass

from ..symbolic import Expr
from ..tir import Scalar

LANES = {"vec4": "f32", "uvec4": "u32", "ivec4": "i32"}
VECTORS = {element: vector for vector, element in LANES.items()}


@dataclass(frozen=True, slots=True)
class Local(Scalar):
    """A `let` or a register, by name. Type vec4 is four f32."""

    name: str
    type: str

    @property
    def dtype(self) -> str:
        return self.type

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Element(Scalar):
    """An element of a register array or of a workgroup array."""

    array: str
    index: Expr
    type: str

    @property
    def dtype(self) -> str:
        return self.type

    def __str__(self) -> str:
        return f"{self.array}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Vector(Scalar):
    """Four f32 values as a vec4, u32 as a uvec4, i32 as an ivec4."""

    parts: tuple[Scalar, ...]

    @property
    def dtype(self) -> str:
        return VECTORS[self.parts[0].dtype]

    def __str__(self) -> str:
        parts = self.parts[:1] if len(set(self.parts)) == 1 else self.parts
        return f"{self.dtype}({', '.join(map(str, parts))})"


@dataclass(frozen=True, slots=True)
class Matrix(Scalar):
    """Four vec4 as the columns of a matrix."""

    columns: tuple[Scalar, ...]

    @property
    def dtype(self) -> str:
        return "mat4"

    def __str__(self) -> str:
        return f"mat4({', '.join(map(str, self.columns))})"


@dataclass(frozen=True, slots=True)
class MatrixProduct(Scalar):
    """vec4 * matrix: the dot product with each column; matrix * vec4: the sum of the columns, weighted."""

    left: Scalar
    right: Scalar

    @property
    def dtype(self) -> str:
        return "vec4"

    def __str__(self) -> str:
        return f"({self.left} * {self.right})"


@dataclass(frozen=True, slots=True)
class Dot(Scalar):
    """The f32 dot product of two vec4."""

    left: Scalar
    right: Scalar

    @property
    def dtype(self) -> str:
        return "f32"

    def __str__(self) -> str:
        return f"dot({self.left}, {self.right})"


@dataclass(frozen=True, slots=True)
class Lane(Scalar):
    """One component of a vec4 (of f32) or uvec4 (of u32)."""

    vector: Scalar
    at: int

    @property
    def dtype(self) -> str:
        return LANES[self.vector.dtype]

    def __str__(self) -> str:
        return f"{self.vector}.{'xyzw'[self.at]}"


@dataclass(frozen=True, slots=True)
class Component(Scalar):
    """One component of a vector in memory, picked at run time."""

    vector: Scalar
    index: Expr

    @property
    def dtype(self) -> str:
        return LANES[self.vector.dtype]

    def __str__(self) -> str:
        return f"{self.vector}[{self.index}]"
