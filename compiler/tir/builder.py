"""Builds tensor programs from Python functions of the indices.

The product of a matrix and a transposed one:

    b = ProgramBuilder("linear")
    x, w = b.input("x", (n, 64), "f32"), b.input("w", (32, 64), "f32")
    y = b.reduce("y", (n, 32), (64,), lambda i, o, k: x[i, k] * w[o, k])
    program = b.finish(y)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..symbolic import Expr, Var, as_expr, as_int
from .program import SUM, Axis, Buffer, Program, Reducer, Stage, free_symbols
from .scalar import DTYPE_BYTES, Load, Scalar, ScalarLike, as_scalar, loaded_index

IntLike = Expr | int


def axis(name: str, extent: IntLike) -> Axis:
    """A loop variable with the bounds that its extent gives, and its extent."""
    size = as_int(as_expr(extent))
    return Axis(Var(name, 0, None if size is None else max(size - 1, 0)), as_expr(extent))


@dataclass(frozen=True)
class Handle:
    """A buffer under construction: `handle[i, j]` loads an element. A loaded i32 may be an index."""

    buffer: Buffer

    def __getitem__(self, indices: Scalar | IntLike | tuple[Scalar | IntLike, ...]) -> Load:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.buffer.shape):
            raise ValueError(f"{self.buffer} has {len(self.buffer.shape)} dimensions, not {len(given)}")
        return Load(self.buffer.name, as_indices(given, self.buffer), self.buffer.dtype)


def as_indices(given: Sequence[Scalar | IntLike], buffer: Buffer) -> tuple[Expr, ...]:
    """Indices as symbolic expressions; loaded integers become opaque ones. Raises TypeError for other scalars."""
    result = []
    for index, extent in zip(given, buffer.shape, strict=True):
        if isinstance(index, Load) and index.dtype == "i32":
            result.append(loaded_index(index, extent))
        elif isinstance(index, Scalar):
            raise TypeError(f"an index is an integer expression or a loaded i32, not {index}")
        else:
            result.append(as_expr(index))
    return tuple(result)


class ProgramBuilder:
    """Collects buffers and stages; `finish` gives the program.

    Raises ValueError for a name that is taken, a type that a buffer cannot have, and a reducer of another type.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[Buffer] = []
        self._computed: list[Buffer] = []
        self._names: set[str] = set()
        self._stages: list[Stage] = []
        self._in_place: list[tuple[str, str]] = []

    def input(self, name: str, shape: Sequence[IntLike], dtype: str) -> Handle:
        """Declares an input buffer."""
        buffer = self._buffer(name, shape, dtype)
        self._inputs.append(buffer)
        return Handle(buffer)

    def compute(self, name: str, shape: Sequence[IntLike], body: Callable[..., ScalarLike]) -> Handle:
        """A stage without reduction: body(*indices) is the element."""
        axes = tuple(axis(f"i{d}", extent) for d, extent in enumerate(shape))
        return self._stage(name, axes, (), body(*(a.var for a in axes)), None)

    def reduce(
        self,
        name: str,
        shape: Sequence[IntLike],
        over: Sequence[IntLike],
        body: Callable[..., ScalarLike],
        reducer: Reducer = SUM,
    ) -> Handle:
        """A reduction of body(*indices, *reduction indices) over the extents `over`."""
        axes = tuple(axis(f"i{d}", extent) for d, extent in enumerate(shape))
        inner = tuple(axis(f"k{d}", extent) for d, extent in enumerate(over))
        return self._stage(name, axes, inner, body(*(a.var for a in (*axes, *inner))), reducer)

    def scatter(
        self,
        name: str,
        target: Handle,
        domain: Sequence[IntLike],
        where: Callable[..., tuple[Scalar | IntLike, ...]],
        body: Callable[..., ScalarLike],
    ) -> Handle:
        """Overwrites elements of an input in place: target[where(*indices)] = body(*indices) over the domain."""
        if target.buffer not in self._inputs:
            raise ValueError(f"{self._name}: only an input can be overwritten, {target.buffer.name} is none")
        axes = tuple(axis(f"i{d}", extent) for d, extent in enumerate(domain))
        out = self._buffer(name, target.buffer.shape, target.buffer.dtype)
        indices = as_indices(where(*(a.var for a in axes)), out)
        value = as_scalar(body(*(a.var for a in axes)), out.dtype)
        if value.dtype != out.dtype:
            raise ValueError(f"{self._name}: {name} holds {out.dtype}, not {value.dtype}")
        self._computed.append(out)
        self._in_place.append((name, target.buffer.name))
        self._stages.append(Stage((name,), axes, indices, (value,)))
        return Handle(out)

    def _buffer(self, name: str, shape: Sequence[IntLike], dtype: str) -> Buffer:
        if name in self._names:
            raise ValueError(f"{self._name}: there is a buffer {name} already")
        if dtype not in DTYPE_BYTES:
            raise ValueError(f"{self._name}: {name} cannot hold {dtype}; buffers hold {', '.join(DTYPE_BYTES)}")
        self._names.add(name)
        return Buffer(name, tuple(map(as_expr, shape)), dtype)

    def _stage(
        self, name: str, axes: tuple[Axis, ...], inner: tuple[Axis, ...], body: ScalarLike, reducer: Reducer | None
    ) -> Handle:
        value = as_scalar(body, "f32")
        if reducer is not None and reducer.identities[0].dtype != value.dtype:
            raise ValueError(f"{self._name}: {reducer.name} of {reducer.identities[0].dtype} cannot take {value.dtype}")
        buffer = self._buffer(name, [a.extent for a in axes], value.dtype)
        self._computed.append(buffer)
        self._stages.append(Stage((name,), axes, tuple(a.var for a in axes), (value,), inner, reducer))
        return Handle(buffer)

    def finish(self, *outputs: Handle) -> Program:
        """The program whose results are the given buffers, in order; other computed buffers are local."""
        results = tuple(h.buffer for h in outputs)
        for buffer in results:
            if buffer not in self._computed:
                raise ValueError(f"{self._name} does not compute {buffer.name}")
        inner = tuple(b for b in self._computed if b not in results)
        program = Program(
            self._name, tuple(self._inputs), results, tuple(self._stages), inner, (), tuple(self._in_place)
        )
        return replace(program, symbols=free_symbols(program))
