"""Tiled matrix multiplication with the decode of either operand, batches, and edges of any size.

A workgroup computes ROWS x COLUMNS outputs. Step by step along the sum it computes both operands' next DEPTH positions
into workgroup memory (each element once: a weight is decoded once for all rows of the tile), as vec4 along the sum.
Then each thread adds the dot products for its own TALL x WIDE outputs, kept in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..symbolic import Expr, ceildiv, is_multiple_of, upper_bound
from ..target import Target
from ..tir import Axis, Binary, Literal, Program, Scalar, Select, scalar_variables
from .body import Body, below
from .contraction import Contraction, contraction, finish_point, is_contiguous, runs
from .kernel import GROUP, Dot, Element, Kernel, Local, Vector, lane
from .limits import check_own_points
from .lower import bounded, finish, product, taken_names, unflatten

ROWS, COLUMNS, DEPTH = 32, 64, 32
THREADS = 64
TALL, WIDE = 8, 4  # a thread's outputs
LEAST_ROWS = 4  # fewer rows than this are no matrix: GEMV is better


@dataclass(frozen=True, slots=True)
class Matmul:
    """sum over k of left * right: `rows` index left alone, `columns` right alone, `batch` both."""

    found: Contraction
    left: Scalar
    right: Scalar
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]


def matmul(program: Program) -> Matmul | None:
    """The program as a matrix multiplication with pointwise company, None if it is something else."""
    found = contraction(program)
    if found is None or found.stage.reducer is None or found.stage.reducer.name != "sum":
        return None
    (value,) = found.values
    if not isinstance(value, Binary) or value.op != "mul" or value.dtype != "f32":
        return None
    left, right = value.left, value.right
    in_left, in_right = scalar_variables(left), scalar_variables(right)
    if not any(a.var in in_right and a.var not in in_left for a in found.axes[-1:]):
        left, right, in_left, in_right = right, left, in_right, in_left
    rows = tuple(a for a in found.axes if a.var in in_left and a.var not in in_right)
    columns = tuple(a for a in found.axes if a.var in in_right and a.var not in in_left)
    if not rows or not columns or found.k not in in_left or found.k not in in_right:
        return None
    batch = tuple(a for a in found.axes if a not in rows and a not in columns)
    return Matmul(found, left, right, rows, columns, batch)


def is_gemm(program: Program) -> bool:
    """A sum of products over matrices of more than a few rows."""
    found = matmul(program)
    if found is None:
        return False
    height = upper_bound(product(a.extent for a in found.rows))
    return height is None or height >= LEAST_ROWS


def schedule_gemm(program: Program, target: Target) -> Kernel:
    """The kernel of a program for which `is_gemm` holds."""
    mm = matmul(program)
    assert mm is not None
    found = mm.found
    body = Body(taken_names(program))
    height, width, batches = (product(a.extent for a in axes) for axes in (mm.rows, mm.columns, mm.batch))
    grid = (ceildiv(width, COLUMNS), ceildiv(height, ROWS), batches)
    column0, row0 = bounded(GROUP[0], grid[0]) * COLUMNS, bounded(GROUP[1], grid[1]) * ROWS
    batch = _point(mm.batch, bounded(GROUP[2], batches))
    thread = lane(THREADS)
    across, down = thread % (COLUMNS // WIDE), thread // (COLUMNS // WIDE)
    tiles = (
        body.shared_array("left", "vec4", ROWS * DEPTH // 4),
        body.shared_array("right", "vec4", COLUMNS * DEPTH // 4),
    )
    sums = [[body.register(f"s{r}{c}", Literal(0.0, "f32")) for c in range(WIDE)] for r in range(TALL)]
    with body.loop("step", 0, ceildiv(found.length, DEPTH)) as step:
        first = step * DEPTH
        _stage(body, mm, mm.left, mm.rows, batch, tiles[0], ROWS, row0, first)
        _stage(body, mm, mm.right, mm.columns, batch, tiles[1], COLUMNS, column0, first)
        body.barrier()
        _multiply(body, tiles, sums, across, down)
        body.barrier()
    results = body.registers("sums", [value for row in sums for value in row])
    with body.loop("r", 0, TALL) as r:
        row = body.let_index("row", row0 + down * TALL + r, _last(height))
        with body.when(below(row, height)), body.loop("c", 0, WIDE) as c:
            column = body.let_index("column", column0 + across + c * (COLUMNS // WIDE), _last(width))
            with body.when(below(column, width)):
                point = {**batch, **_point(mm.rows, row), **_point(mm.columns, column)}
                finish_point(body, program, found, point, [Element(results, r * WIDE + c, "f32")])
    return check_own_points(finish(program, body, THREADS, grid), program)


def _last(extent: Expr) -> int | None:
    high = upper_bound(extent)
    return None if high is None else high - 1


def _point(axes: tuple[Axis, ...], flat: Expr) -> dict[Expr, Expr | int]:
    where = unflatten(flat, [a.extent for a in axes])
    return {a.var: index for a, index in zip(axes, where, strict=True)}


def _stage(
    body: Body,
    mm: Matmul,
    operand: Scalar,
    axes: tuple[Axis, ...],
    batch: dict[Expr, Expr | int],
    tile: str,
    size: int,
    offset: Expr,
    first: Expr,
) -> None:
    """Computes `size` x DEPTH elements of an operand into its tile: four positions of k at [k // 4 * size + place].

    A thread takes a run of k of one place at a time. Places next to each other go to neighbouring threads, unless
    memory is contiguous along k and nothing is decoded: then runs of the same place do.
    """
    found = mm.found
    inner, outer = runs(found, [operand], DEPTH)
    decoded = outer > 4
    run = min(outer, size * DEPTH // THREADS) if decoded else 4
    inner = max(4, min(inner, run))
    extent = product(a.extent for a in axes)
    along_places = decoded or is_contiguous(found, [operand], axes[-1].var)
    with body.loop("u", 0, size * DEPTH // run // THREADS) as u:
        unit = u * THREADS + lane(THREADS)
        if along_places:
            place, part = unit % size, unit // size
        else:
            place, part = unit // (DEPTH // run), unit % (DEPTH // run)
        place = body.let_index("place", place)
        where = _point(axes, body.let_index("at", offset + place, _last(extent)))

        def fill(start: Expr) -> None:
            for v in range(0, inner, 4):
                values = tuple(_guarded(found, operand, {**batch, **where}, first + start + v + e) for e in range(4))
                slot = _quarter(start + v) * size + place
                body.assign(Element(tile, slot, "vec4"), Vector(values))

        if inner == run:
            fill(part * run)
        else:
            with body.loop("w", 0, run // inner) as w:
                fill(part * run + w * inner)


def _quarter(position: Expr) -> Expr:
    return position // 4


def _guarded(found: Contraction, operand: Scalar, point: dict[Expr, Expr | int], k: Expr) -> Scalar:
    """The operand at k; 0 behind the end of the sum. (Places behind the edge are computed and never stored.)"""
    value = found.at(operand, point, k)
    if is_multiple_of(found.length, DEPTH):
        return value
    return Select(below(k, found.length), value, Literal(0.0, "f32"))


def _multiply(body: Body, tiles: tuple[str, str], sums: list[list[Local]], across: Expr, down: Expr) -> None:
    left, right = tiles
    with body.loop("q", 0, DEPTH // 4) as q:
        a = [body.let(f"a{r}", Element(left, q * ROWS + down * TALL + r, "vec4")) for r in range(TALL)]
        b = [
            body.let(f"b{c}", Element(right, q * COLUMNS + across + c * (COLUMNS // WIDE), "vec4")) for c in range(WIDE)
        ]
        for r in range(TALL):
            for c in range(WIDE):
                body.assign(sums[r][c], sums[r][c] + Dot(a[r], b[c]))
