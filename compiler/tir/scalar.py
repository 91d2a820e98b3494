"""Scalar expressions: what one element of a buffer is computed from.

Integer indices are symbolic expressions (`symbolic.Expr`), everything else is one of the nodes below. A loaded
integer enters an index as `Opaque(Load(...))`, so a gather needs no node of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..symbolic import Expr, Opaque, Var, as_expr, substitute, upper_bound, variables, walk

Number = int | float
DTYPE_BYTES = {"f32": 4, "f16": 2, "i32": 4, "u32": 4}

UNARY = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "floor")
BINARY = ("add", "sub", "mul", "div", "max", "min", "pow", "and", "or", "xor", "shl", "shr")
COMPARE = ("lt", "le", "eq", "ne")
_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
}


class Scalar:
    """Base of the nodes; arithmetic on it builds nodes. `dtype` is f32, f16, i32, u32 or bool."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        raise NotImplementedError

    def __add__(self, other: ScalarLike) -> Scalar:
        return Binary("add", self, as_scalar(other, self.dtype))

    def __radd__(self, other: ScalarLike) -> Scalar:
        return Binary("add", as_scalar(other, self.dtype), self)

    def __sub__(self, other: ScalarLike) -> Scalar:
        return Binary("sub", self, as_scalar(other, self.dtype))

    def __rsub__(self, other: ScalarLike) -> Scalar:
        return Binary("sub", as_scalar(other, self.dtype), self)

    def __mul__(self, other: ScalarLike) -> Scalar:
        return Binary("mul", self, as_scalar(other, self.dtype))

    def __rmul__(self, other: ScalarLike) -> Scalar:
        return Binary("mul", as_scalar(other, self.dtype), self)

    def __truediv__(self, other: ScalarLike) -> Scalar:
        return Binary("div", self, as_scalar(other, self.dtype))

    def __rtruediv__(self, other: ScalarLike) -> Scalar:
        return Binary("div", as_scalar(other, self.dtype), self)

    def __and__(self, other: ScalarLike) -> Scalar:
        return Binary("and", self, as_scalar(other, self.dtype))

    def __or__(self, other: ScalarLike) -> Scalar:
        return Binary("or", self, as_scalar(other, self.dtype))

    def __lshift__(self, other: ScalarLike) -> Scalar:
        return Binary("shl", self, as_scalar(other, "u32"))

    def __rshift__(self, other: ScalarLike) -> Scalar:
        return Binary("shr", self, as_scalar(other, "u32"))

    def __neg__(self) -> Scalar:
        return Unary("neg", self)


ScalarLike = Scalar | Expr | Number


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Scalar):
    """A constant. Constants are equal if their bits are: 0.0 and -0.0, or 1 and 1.0, are not."""

    value: Number
    type: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self.type, repr(self.value)) == (other.type, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.type, repr(self.value)))

    @property
    def dtype(self) -> str:
        return self.type

    def __str__(self) -> str:
        return repr(self.value) if self.type in ("f32", "i32") else f"{self.type}({self.value!r})"


@dataclass(frozen=True, slots=True)
class Index(Scalar):
    """A symbolic integer used as a value."""

    expr: Expr

    @property
    def dtype(self) -> str:
        return "i32"

    def __str__(self) -> str:
        return f"({self.expr})"


@dataclass(frozen=True, slots=True)
class Load(Scalar):
    """One element of a buffer of the program, named; the indices count elements, row-major.

    They must be in range, except where a `Select` drops the value: there any element may be read.
    """

    buffer: str
    indices: tuple[Expr, ...]
    type: str

    @property
    def dtype(self) -> str:
        return self.type

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.indices))}]"

    # The protocol of symbolic.Opaque's payload.
    def substitute(self, mapping: Mapping[Expr, Expr | int]) -> Load:
        return Load(self.buffer, tuple(substitute(i, mapping) for i in self.indices), self.type)

    def variables(self) -> tuple[Var, ...]:
        return tuple(sorted({v for i in self.indices for v in variables(i)}, key=lambda v: v.name))


@dataclass(frozen=True, slots=True)
class Unary(Scalar):
    """One of UNARY, of the operand's type."""

    op: str
    operand: Scalar

    @property
    def dtype(self) -> str:
        return self.operand.dtype

    def __str__(self) -> str:
        return f"-{self.operand}" if self.op == "neg" else f"{self.op}({self.operand})"


@dataclass(frozen=True, slots=True)
class Binary(Scalar):
    """One of BINARY over two operands of one type (shifts: the second is u32)."""

    op: str
    left: Scalar
    right: Scalar

    @property
    def dtype(self) -> str:
        return self.left.dtype

    def __str__(self) -> str:
        if self.op in _SIGNS:
            return f"({self.left} {_SIGNS[self.op]} {self.right})"
        return f"{self.op}({self.left}, {self.right})"


@dataclass(frozen=True, slots=True)
class Compare(Scalar):
    """One of COMPARE over two operands of one type."""

    op: str
    left: Scalar
    right: Scalar

    @property
    def dtype(self) -> str:
        return "bool"

    def __str__(self) -> str:
        return f"({self.left} {_SIGNS[self.op]} {self.right})"


@dataclass(frozen=True, slots=True)
class Select(Scalar):
    """`yes` where the condition holds, else `no`. Both may be evaluated, see `Load`."""

    condition: Scalar
    yes: Scalar
    no: Scalar

    @property
    def dtype(self) -> str:
        return self.yes.dtype

    def __str__(self) -> str:
        return f"select({self.condition}, {self.yes}, {self.no})"


@dataclass(frozen=True, slots=True)
class Cast(Scalar):
    """Conversion of the value; floats to integers round towards zero."""

    type: str
    operand: Scalar

    @property
    def dtype(self) -> str:
        return self.type

    def __str__(self) -> str:
        return f"{self.type}({self.operand})"


@dataclass(frozen=True, slots=True)
class Bitcast(Scalar):
    """The same bits as another 4-byte type; "half" reads the low 16 bits of a u32 as an f16, widened exactly to f32."""

    type: str
    operand: Scalar

    @property
    def dtype(self) -> str:
        return "f32" if self.type == "half" else self.type

    def __str__(self) -> str:
        return f"bitcast_{self.type}({self.operand})"


def as_scalar(value: ScalarLike, dtype: str) -> Scalar:
    """A literal of the given type, an index, or the scalar itself."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Expr):
        return Index(value) if dtype == "i32" else Cast(dtype, Index(value))
    return Literal(float(value) if dtype in ("f32", "f16") else int(value), dtype)


def exp(x: Scalar) -> Scalar:
    return Unary("exp", x)


def rsqrt(x: Scalar) -> Scalar:
    return Unary("rsqrt", x)


def maximum(a: Scalar, b: ScalarLike) -> Scalar:
    return Binary("max", a, as_scalar(b, a.dtype))


def minimum(a: Scalar, b: ScalarLike) -> Scalar:
    return Binary("min", a, as_scalar(b, a.dtype))


def less_equal(a: ScalarLike, b: ScalarLike) -> Scalar:
    """a <= b over integers (indices or i32 scalars) or floats."""
    dtype = next((x.dtype for x in (a, b) if isinstance(x, Scalar)), "i32")
    return Compare("le", as_scalar(a, dtype), as_scalar(b, dtype))


def less(a: ScalarLike, b: ScalarLike) -> Scalar:
    dtype = next((x.dtype for x in (a, b) if isinstance(x, Scalar)), "i32")
    return Compare("lt", as_scalar(a, dtype), as_scalar(b, dtype))


def half(bits: Scalar) -> Scalar:
    """The f32 value of the f16 in the low 16 bits of a u32."""
    return Bitcast("half", bits)


def loaded_index(load: Load, extent: Expr | int) -> Expr:
    """A loaded integer as an index into a dimension of that extent; whoever provides the data guarantees the range."""
    return Opaque(load, 0, upper_bound(as_expr(extent) - 1))


def rebuild(node: Scalar, on_scalar: Callable[[Scalar], Scalar], on_index: Callable[[Expr], Expr]) -> Scalar:
    """The node with its scalar children and its index expressions mapped (one level: recursion is the callback's)."""
    match node:
        case Literal():
            return node
        case Index(expr):
            return Index(on_index(expr))
        case Load(buffer, indices, dtype):
            return Load(buffer, tuple(on_index(i) for i in indices), dtype)
        case Unary(op, x):
            return Unary(op, on_scalar(x))
        case Binary(op, a, b) | Compare(op, a, b):
            return replace(node, left=on_scalar(a), right=on_scalar(b))
        case Select(c, a, b):
            return Select(on_scalar(c), on_scalar(a), on_scalar(b))
        case Cast(_, x) | Bitcast(_, x):
            return replace(node, operand=on_scalar(x))
    raise TypeError(f"not a scalar expression: {node!r}")


def children(node: Scalar) -> tuple[Scalar, ...]:
    """The scalar operands of a node, in order."""
    match node:
        case Unary(_, x) | Cast(_, x) | Bitcast(_, x):
            return (x,)
        case Binary(_, a, b) | Compare(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
    return ()


def substitute_scalar(node: Scalar, mapping: Mapping[Expr, Expr | int]) -> Scalar:
    """Replaces symbolic variables, simultaneously, in all index expressions."""
    return rebuild(node, lambda s: substitute_scalar(s, mapping), lambda e: substitute(e, mapping))


def opaque_loads(expr: Expr) -> Iterator[Load]:
    """The loads inside an index expression."""
    for part in walk(expr):
        if isinstance(part, Opaque) and isinstance(part.payload, Load):
            yield part.payload
            for index in part.payload.indices:
                yield from opaque_loads(index)


def nodes(node: Scalar) -> Iterator[Scalar]:
    """The node and all scalar expressions below it, first to last; those inside indices are not entered."""
    yield node
    for child in children(node):
        yield from nodes(child)


def index_expressions(node: Scalar) -> tuple[Expr, ...]:
    """The symbolic integers that the node itself holds."""
    match node:
        case Load(indices=indices):
            return indices
        case Index(expr):
            return (expr,)
    return ()


def direct_loads(node: Scalar) -> Iterator[Load]:
    """The loads whose element is used as a value, with repetitions."""
    return (part for part in nodes(node) if isinstance(part, Load))


def index_loads(node: Scalar) -> Iterator[Load]:
    """The loads whose element is used as an index, with repetitions."""
    return (load for part in nodes(node) for index in index_expressions(part) for load in opaque_loads(index))


def loads(node: Scalar) -> Iterator[Load]:
    """Every load of an expression, with repetitions."""
    yield from index_loads(node)
    yield from direct_loads(node)


def scalar_variables(node: Scalar) -> frozenset[Var]:
    """The symbolic variables that an expression reads, loop variables included."""
    return frozenset(v for part in nodes(node) for index in index_expressions(part) for v in variables(index))
