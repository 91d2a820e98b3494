"""Runs tensor programs on NumPy arrays, as written: the definition of what every kernel must compute.

Spatial points are evaluated in blocks, so that no intermediate is larger than BLOCK elements. A sum of products is
contracted by einsum on its two factors: the same values in another order of addition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..symbolic import Add as SymAdd
from ..symbolic import Const, Expr, FloorDiv, FloorMod, Max, Min, Opaque, Var, evaluate
from ..symbolic import Mul as SymMul
from .program import Program, Reducer, Stage
from .scalar import Binary, Bitcast, Cast, Compare, Index, Literal, Load, Scalar, Select, Unary, loads, scalar_variables

Array = np.ndarray[Any, Any]
BLOCK = 1 << 23
NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "i32": np.dtype("<i4"),
    "u32": np.dtype("<u4"),
    "bool": np.dtype(bool),
}

_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "floor": np.floor,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
}
_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_SHIFT: Mapping[str, Callable[[Array, Array], Array]] = {"shl": np.left_shift, "shr": np.right_shift}
_COMPARE: Mapping[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@dataclass
class ConstantCache:
    """Values of sub-expressions that read only read-only arrays (weights), kept between runs. Pure memoization."""

    values: dict[Any, Any] = field(default_factory=dict)


def execute(
    program: Program,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    symbols: Mapping[Var, int] | Sequence[int] = (),
    cache: ConstantCache | None = None,
) -> None:
    """Runs `program`: reads `inputs`, fills `outputs`, all of the shapes that its buffers declare.

    An in-place output must be the same memory as its input. `symbols` gives the program's shape variables by name or
    in order. Raises ValueError where an array does not fit its buffer.
    """
    env = environment(program, symbols)
    arrays: dict[str, Array] = {}
    for buffer, array in zip((*program.inputs, *program.outputs), (*inputs, *outputs), strict=True):
        shape = tuple(evaluate(extent, env) for extent in buffer.shape)
        if array.shape != shape or array.dtype != NUMPY_DTYPES[buffer.dtype]:
            raise ValueError(f"{program.name}: {buffer} is {shape} here, the array is {array.dtype}{array.shape}")
        arrays[buffer.name] = array
    for buffer in program.locals:
        shape = tuple(evaluate(extent, env) for extent in buffer.shape)
        arrays[buffer.name] = np.empty(shape, NUMPY_DTYPES[buffer.dtype])
    for output, source in program.in_place:
        if arrays[output].size and not np.may_share_memory(arrays[output], arrays[source]):
            raise ValueError(f"{program.name}: {output} overwrites {source}, it must be the same memory")
    with np.errstate(all="ignore"):
        for stage in program.stages:
            _run_stage(stage, arrays, env, cache)


def environment(program: Program, symbols: Mapping[Var, int] | Sequence[int]) -> dict[Var, int]:
    """The values of the program's shape variables, given by name or in order."""
    return dict(symbols) if isinstance(symbols, Mapping) else dict(zip(program.symbols, symbols, strict=True))


def _run_stage(stage: Stage, arrays: dict[str, Array], env: dict[Var, int], cache: ConstantCache | None) -> None:
    spatial = [evaluate(axis.extent, env) for axis in stage.spatial]
    inner = [evaluate(axis.extent, env) for axis in stage.reduce]
    for block in _blocks(spatial, max(1, BLOCK // max(1, int(np.prod(inner))))):
        grid = _Grid.make(stage, block, inner, arrays, env, cache)
        if stage.reducer is None:
            results = [grid.value(value) for value in stage.values]
        else:
            results = _reduce(stage.reducer, stage, grid, len(block))
        shape = tuple(stop - start for start, stop in block)
        where: tuple[Any, ...] = tuple(slice(*bounds) for bounds in block)
        if not stage.is_pointwise:
            indices = (_spatial_view(grid.index(i), len(block)) for i in stage.indices)
            where = tuple(np.broadcast_to(i, shape) for i in indices)
        for name, result in zip(stage.outputs, results, strict=True):
            arrays[name][where] = np.broadcast_to(_spatial_view(result, len(block)), shape)


def _blocks(extents: list[int], limit: int) -> Iterator[list[tuple[int, int]]]:
    """Splits a spatial domain into boxes of at most about `limit` points, cutting the outer axes first."""
    if any(e == 0 for e in extents):
        return
    steps, room = [], limit
    for extent in reversed(extents):
        step = max(1, min(extent, room))
        steps.append(step)
        room //= step
    ranges = [
        [(s, min(s + step, e)) for s in range(0, e, step)] for e, step in zip(extents, reversed(steps), strict=True)
    ]
    yield from (list(box) for box in itertools.product(*ranges))


def _spatial_view(value: Any, rank: int) -> Any:
    """Drops the reduction dimensions (of extent 1) behind the spatial ones."""
    array = np.asarray(value)
    return array.reshape(array.shape[:rank]) if array.ndim > rank else array


@dataclass
class _Grid:
    """One block of a stage's domain: every axis has a dimension of its own, so that values broadcast."""

    rank: int
    ranges: dict[Var, Array]
    bounds: dict[Var, tuple[int, int, int]]
    arrays: dict[str, Array]
    env: dict[Var, int]
    cache: ConstantCache | None

    @staticmethod
    def make(
        stage: Stage,
        block: list[tuple[int, int]],
        inner: list[int],
        arrays: dict[str, Array],
        env: dict[Var, int],
        cache: ConstantCache | None,
    ) -> _Grid:
        axes = (*stage.spatial, *stage.reduce)
        bounds = [*block, *((0, e) for e in inner)]
        ranges = {
            axis.var: np.arange(*bound, dtype=np.int64).reshape([-1 if d == at else 1 for d in range(len(axes))])
            for at, (axis, bound) in enumerate(zip(axes, bounds, strict=True))
        }
        places = {a.var: (at, *bound) for at, (a, bound) in enumerate(zip(axes, bounds, strict=True))}
        return _Grid(len(axes), ranges, places, arrays, env, cache)

    def index(self, expr: Expr) -> Any:
        """The values of an index expression: an int or an array that broadcasts over the block."""
        match expr:
            case Const(value):
                return value
            case Var():
                return self.ranges[expr] if expr in self.ranges else self.env[expr]
            case FloorDiv(a, b):
                return self.index(a) // self.index(b)
            case FloorMod(a, b):
                return self.index(a) % self.index(b)
            case Min(args):
                return _fold(np.minimum, [self.index(a) for a in args])
            case Max(args):
                return _fold(np.maximum, [self.index(a) for a in args])
            case SymAdd(terms):
                return sum(self.index(t) for t in terms)
            case SymMul(coefficient, factors):
                product: Any = coefficient
                for factor in factors:
                    product = product * self.index(factor)
                return product
            case Opaque(payload):
                assert isinstance(payload, Load)
                return self.value(payload).astype(np.int64)
        raise TypeError(f"not an index: {expr!r}")

    def value(self, node: Scalar) -> Any:
        """The values of a scalar expression over the block."""
        match node:
            case Literal(value, dtype):
                return NUMPY_DTYPES[dtype].type(value)
            case Index(expr):
                return np.asarray(self.index(expr)).astype(np.int32)
            case Load(buffer, indices):
                return self._load(self.arrays[buffer], [self.index(i) for i in indices])
            case Unary(op, x):
                return _UNARY[op](self.value(x))
            case Binary("div", a, b):
                x, y = self.value(a), self.value(b)
                return x / y if node.dtype.startswith("f") else np.trunc(x / y).astype(x.dtype)
            case Binary("shl" | "shr" as op, a, b):
                bits = np.asarray(self.value(a))
                return _SHIFT[op](bits, np.asarray(self.value(b)).astype(bits.dtype))
            case Binary(op, a, b):
                return _BINARY[op](self.value(a), self.value(b))
            case Compare(op, a, b):
                return _COMPARE[op](self.value(a), self.value(b))
            case Select(c, a, b):
                return np.where(self.value(c), self.value(a), self.value(b))
            case Cast(dtype, x):
                return np.asarray(self.value(x)).astype(NUMPY_DTYPES[dtype])
            case Bitcast("half", x):
                low = (np.asarray(self.value(x)) & 0xFFFF).astype(np.uint16)
                return low.view(np.float16).astype(np.float32)
            case Bitcast(dtype, x):
                return np.asarray(self.value(x)).view(NUMPY_DTYPES[dtype])
        raise TypeError(f"not a scalar expression: {node!r}")

    def _load(self, array: Array, indices: list[Any]) -> Any:
        # An untaken arm of a select may be out of range.
        if not array.size:
            return np.zeros(np.broadcast_shapes(*(np.shape(i) for i in indices)), array.dtype)
        clamped = tuple(
            np.clip(i, 0, extent - 1) if isinstance(i, np.ndarray) else min(max(i, 0), extent - 1)
            for i, extent in zip(indices, array.shape, strict=True)
        )
        return array[clamped]

    def constant(self, node: Scalar) -> Any:
        """`value`, remembered where the expression depends on nothing but read-only arrays and the loops."""
        if self.cache is None or isinstance(node, Load):
            return self.value(node)
        read = [self.arrays[name] for name in dict.fromkeys(load.buffer for load in loads(node))]
        used = scalar_variables(node)
        if not read or any(array.flags.writeable for array in read) or not used <= self.bounds.keys():
            return self.value(node)
        key = (node, self.rank, frozenset((v, self.bounds[v]) for v in used), tuple(map(id, read)))
        if key not in self.cache.values:
            # The arrays are kept too: an id is only unique while its object lives.
            self.cache.values[key] = (self.value(node), read)
        return self.cache.values[key][0]


def _fold(function: Any, values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


def _reduce(reducer: Reducer, stage: Stage, grid: _Grid, rank: int) -> list[Any]:
    """The reduced values of a block, each with the spatial dimensions only."""
    over = tuple(range(rank, grid.rank))
    shape = np.broadcast_shapes(*(r.shape for r in grid.ranges.values())) if grid.ranges else ()
    if not all(shape[d] for d in over):
        return [np.full(shape[:rank], i.value, NUMPY_DTYPES[i.type]) for i in reducer.identities]
    match reducer.name, stage.values:
        case "sum", (Binary("mul", a, b),):
            left, right = grid.constant(a), grid.constant(b)
            return [_contract(np.asarray(left), np.asarray(right), shape, rank)]
        case "sum", (value,):
            values = _with_rank(grid.value(value), grid.rank)
            full = np.broadcast_to(values, (*values.shape[:rank], *shape[rank:]))
            return [full.sum(axis=over, dtype=full.dtype)]
        case ("max" | "min") as name, (value,):
            full = _with_rank(grid.value(value), grid.rank)
            return [(np.max if name == "max" else np.min)(full, axis=over)]
        case "argmax", (value, index):
            full = np.broadcast_to(_with_rank(grid.value(value), grid.rank), shape)
            flat = full.reshape(*shape[:rank], -1)
            at = flat.argmax(axis=-1)[..., None]
            where = np.broadcast_to(_with_rank(grid.value(index), grid.rank), shape).reshape(flat.shape)
            return [np.take_along_axis(flat, at, -1)[..., 0], np.take_along_axis(where, at, -1)[..., 0]]
    raise ValueError(f"no reducer {reducer.name}")


def _with_rank(value: Any, rank: int) -> Array:
    array = np.asarray(value)
    return array if array.ndim == rank else np.broadcast_to(array, (1,) * rank)


def _contract(left: Array, right: Array, shape: tuple[int, ...], rank: int) -> Array:
    """The sum of left * right over the dimensions from `rank` on. A factor may lack (have extent 1 in) some."""
    left, right = _with_rank(left, len(shape)), _with_rank(right, len(shape))
    letters = "abcdefghijklmnopqrstuvwxyz"[: len(shape)]
    scale = 1
    for d in range(rank, len(shape)):
        if left.shape[d] == right.shape[d] == 1:
            scale *= shape[d]
    names = []
    for factor in (left, right):
        names.append("".join(c for c, extent in zip(letters, factor.shape, strict=True) if extent > 1))
    out = "".join(c for d, c in enumerate(letters[:rank]) if c in names[0] or c in names[1])
    contracted = np.einsum(
        f"{names[0]},{names[1]}->{out}", left.squeeze(), right.squeeze(), optimize=_has_no_batch(names, out)
    )
    kept = tuple(shape[d] if letters[d] in out else 1 for d in range(rank))
    result: Array = contracted.reshape(kept) * left.dtype.type(scale)
    return result


def _has_no_batch(names: list[str], out: str) -> bool:
    """BLAS serves a contraction without axes that both factors and the result share."""
    return not any(c in names[0] and c in names[1] for c in out)


def run(program: Program, inputs: Sequence[Array], symbols: Sequence[int] | Mapping[Var, int] = ()) -> list[Array]:
    """Runs a program on copies of its in-place inputs and returns fresh outputs."""
    env = environment(program, symbols)
    given = list(inputs)
    outputs = []
    sources = dict(program.in_place)
    positions = {buffer.name: at for at, buffer in enumerate(program.inputs)}
    for buffer in program.outputs:
        if buffer.name in sources:
            at = positions[sources[buffer.name]]
            given[at] = given[at].copy()
            outputs.append(given[at])
        else:
            outputs.append(np.empty([evaluate(e, env) for e in buffer.shape], NUMPY_DTYPES[buffer.dtype]))
    execute(program, given, outputs, env)
    return outputs
