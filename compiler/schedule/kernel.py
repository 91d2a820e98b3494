"""The kernel IR: what one workgroup's threads do, over flat buffers.

Integers (indices, bounds, grids) are symbolic expressions over the symbols, GROUP, the lane and the loops' variables.
Values are tir's scalar nodes plus the few below. A `Load` has one index, which counts elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..symbolic import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Opaque, Var, as_expr, maximum, minimum
from ..tir import Buffer, Load, Scalar
from ..tir import rebuild as rebuild_tir

LANES = {"vec4": "f32", "uvec4": "u32", "ivec4": "i32"}
VECTORS = {element: vector for vector, element in LANES.items()}
GROUP = (Var("group_x"), Var("group_y"), Var("group_z"))  # the workgroup's place in the grid


def lane(size: int) -> Var:
    """The thread's place in a workgroup of `size` threads."""
    return Var("lane", 0, size - 1)


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


@dataclass(frozen=True, slots=True)
class Let:
    """Names a value (a Local) or an integer (a Var, from an expression or an i32 scalar)."""

    target: Local | Var
    value: Scalar | Expr


@dataclass(frozen=True, slots=True)
class Register:
    """Declares a mutable variable; with `values`, more than one of them, an array of that size."""

    name: str
    type: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Sets a register or an element of an array."""

    target: Local | Element
    value: Scalar


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value."""

    buffer: str
    index: Expr
    value: Scalar


@dataclass(frozen=True, slots=True)
class For:
    """for var = start; var < stop; var += step."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """Runs the body where the condition holds."""

    condition: Scalar
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the workgroup, in uniform control flow, wait for each other and see its memory as written."""


Statement = Let | Register | Assign | Store | For | If | Barrier
Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A storage buffer of the kernel, in the order of @binding(1), (2), ... A `vector` one is read by four elements."""

    buffer: Buffer
    writable: bool
    vector: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """An array in workgroup memory."""

    name: str
    type: str
    size: int

    @property
    def bytes(self) -> int:
        return self.size * (16 if self.type == "vec4" else 4)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A scheduled program. Bindings: the program's inputs, then its outputs; an in-place output is its input's."""

    name: str
    bindings: tuple[Binding, ...]
    symbols: tuple[Var, ...]
    workgroup: tuple[int, int, int]
    grid: tuple[Expr, Expr, Expr]
    shared: tuple[Shared, ...]
    body: Block

    def __str__(self) -> str:
        params = ", ".join(f"{'mut ' if b.writable else ''}{b.buffer}" for b in self.bindings)
        head = f"kernel {self.name}({params}; {', '.join(s.name for s in self.symbols)})"
        lines = [head, f"    grid {' x '.join(map(str, self.grid))}, workgroup {' x '.join(map(str, self.workgroup))}"]
        lines += [f"    shared {s.name}: {s.type}[{s.size}]" for s in self.shared]
        return "\n".join([*lines, *_print(self.body, "    ")]) + "\n"


def _print(block: Block, indent: str) -> Iterator[str]:
    for statement in block:
        match statement:
            case Let(target, value):
                yield f"{indent}let {target} = {value}"
            case Register(name, dtype, values):
                yield f"{indent}var {name}: {dtype} = {', '.join(map(str, values))}"
            case Assign(target, value):
                yield f"{indent}{target} = {value}"
            case Store(buffer, index, value):
                yield f"{indent}{buffer}[{index}] = {value}"
            case For(var, start, stop, step, body):
                yield f"{indent}for {var} in {start} .. {stop} step {step}:"
                yield from _print(body, indent + "    ")
            case If(condition, body):
                yield f"{indent}if {condition}:"
                yield from _print(body, indent + "    ")
            case Barrier():
                yield f"{indent}barrier"


# --- rewriting ---

OnScalar = Callable[[Scalar], Scalar]
OnExpr = Callable[[Expr], Expr]


def rebuild(node: Scalar, on_scalar: OnScalar, on_index: OnExpr) -> Scalar:
    """tir's `rebuild`, for the kernel's nodes too (one level: recursion is the callback's)."""
    match node:
        case Local():
            return node
        case Element(array, index, dtype):
            return Element(array, on_index(index), dtype)
        case Vector(parts):
            return Vector(tuple(map(on_scalar, parts)))
        case Matrix(columns):
            return Matrix(tuple(map(on_scalar, columns)))
        case MatrixProduct(a, b):
            return MatrixProduct(on_scalar(a), on_scalar(b))
        case Dot(a, b):
            return Dot(on_scalar(a), on_scalar(b))
        case Lane(vector, at):
            return Lane(on_scalar(vector), at)
        case Component(vector, index):
            return Component(on_scalar(vector), on_index(index))
    return rebuild_tir(node, on_scalar, on_index)


def map_opaque(expr: Expr, change: Callable[[Opaque], Expr]) -> Expr:
    """The expression with every run-time integer in it replaced."""
    match expr:
        case Opaque():
            return change(expr)
        case Const() | Var():
            return expr
        case Add(terms):
            return sum((map_opaque(t, change) for t in terms), as_expr(0))
        case Mul(coefficient, factors):
            product = as_expr(coefficient)
            for factor in factors:
                product = product * map_opaque(factor, change)
            return product
        case FloorDiv(a, b):
            return map_opaque(a, change) // map_opaque(b, change)
        case FloorMod(a, b):
            return map_opaque(a, change) % map_opaque(b, change)
        case Min(args):
            return minimum(*(map_opaque(a, change) for a in args))
        case Max(args):
            return maximum(*(map_opaque(a, change) for a in args))
    raise TypeError(f"not an index: {expr!r}")


def loaded(opaque: Opaque) -> Load:
    """The load behind a run-time integer: kernels have no other ones."""
    assert isinstance(opaque.payload, Load)
    return opaque.payload


def map_loads(expr: Expr, change: OnScalar) -> Expr:
    """The expression with the loads in it mapped (to loads)."""

    def one(opaque: Opaque) -> Expr:
        load = change(loaded(opaque))
        assert isinstance(load, Load)
        return Opaque(load, opaque.lower, opaque.upper)

    return map_opaque(expr, one)


def deep(node: Scalar, change: OnScalar) -> Scalar:
    """Rebuilds a scalar bottom-up, loads inside indices included; `change` maps each node after its children."""

    def on_index(expr: Expr) -> Expr:
        return map_loads(expr, on_scalar)

    def on_scalar(inner: Scalar) -> Scalar:
        return change(rebuild(inner, on_scalar, on_index))

    return on_scalar(node)


def map_block(block: Block, on_scalar: OnScalar, on_index: OnExpr) -> Block:
    """Every expression of the statements mapped, nested ones included. Targets of lets and loops stay."""

    def value(v: Scalar | Expr) -> Scalar | Expr:
        return on_scalar(v) if isinstance(v, Scalar) else on_index(v)

    def one(statement: Statement) -> Statement:
        match statement:
            case Let(target, v):
                return Let(target, value(v))
            case Register(name, dtype, values):
                return Register(name, dtype, tuple(map(on_scalar, values)))
            case Assign(Element(array, index, dtype), v):
                return Assign(Element(array, on_index(index), dtype), on_scalar(v))
            case Assign(target, v):
                return Assign(target, on_scalar(v))
            case Store(buffer, index, v):
                return Store(buffer, on_index(index), on_scalar(v))
            case For(var, start, stop, step, body):
                return For(var, on_index(start), on_index(stop), on_index(step), map_block(body, on_scalar, on_index))
            case If(condition, body):
                return If(on_scalar(condition), map_block(body, on_scalar, on_index))
        return statement

    return tuple(map(one, block))


def rename_memory(block: Block, names: Mapping[str, str]) -> Block:
    """The statements with buffers and arrays renamed."""

    def renamed(node: Scalar) -> Scalar:
        match node:
            case Load(buffer):
                return replace(node, buffer=names.get(buffer, buffer))
            case Element(array):
                return replace(node, array=names.get(array, array))
        return node

    def on_scalar(node: Scalar) -> Scalar:
        return deep(node, renamed)

    def on_index(expr: Expr) -> Expr:
        return map_loads(expr, on_scalar)

    def targets(block: Block) -> Block:
        result: list[Statement] = []
        for s in block:
            match s:
                case Store(buffer):
                    result.append(replace(s, buffer=names.get(buffer, buffer)))
                case Assign(Element(array) as target):
                    result.append(replace(s, target=replace(target, array=names.get(array, array))))
                case For(body=body) | If(body=body):
                    result.append(replace(s, body=targets(body)))
                case _:
                    result.append(s)
        return tuple(result)

    return targets(map_block(block, on_scalar, on_index)) if names else block


def merge_bindings(kernel: Kernel, groups: Sequence[Sequence[int]]) -> Kernel:
    """One binding for each group of positions that are the same memory (the first one's), writable if any of them is.

    Groups must be of one type; merge before `optimize` (which `emit` calls). Merging a read buffer with a written one
    changes what the kernel computes unless the program said so (in place).
    """
    names: dict[str, str] = {}
    writable = [b.writable for b in kernel.bindings]
    dropped: set[int] = set()
    for first, *others in groups:
        for other in others:
            names[kernel.bindings[other].buffer.name] = kernel.bindings[first].buffer.name
            writable[first] |= writable[other]
            dropped.add(other)
    bindings = tuple(
        Binding(b.buffer, w)
        for at, (b, w) in enumerate(zip(kernel.bindings, writable, strict=True))
        if at not in dropped
    )
    return replace(kernel, bindings=bindings, body=rename_memory(kernel.body, names))
