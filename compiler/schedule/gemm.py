"""Matrix multiplication in registers, with the decode of either operand, batches, and edges of any size.

A thread computes TALL rows of `wide` columns, `wide` a multiple of 4, for every product of one left operand (gate and
up). For four positions of the sum it makes the weights a 4 x 4 matrix, decoded once for all its rows, and multiplies
each row's four values with it. No workgroup memory: the rows are the same for neighbouring threads, which a cache
serves as well, and no thread waits for another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..symbolic import Expr, Var, ceildiv, is_multiple_of, upper_bound
from ..target import Target
from ..tir import Axis, Binary, Literal, Program, Scalar, nodes, scalar_variables
from .body import Body, below
from .contraction import Contraction, Term, contraction, finish_point, is_contiguous
from .fields import fields_in_place
from .kernel import GROUP, Kernel, lane
from .limits import check_own_points
from .lower import bounded, finish, product, taken_names, unflatten
from .nodes import Element, Lane, Local, Matrix, MatrixProduct, Vector
from .pack import pack
from .runs import ENOUGH, runs

TALL = 8  # a thread's rows
ACROSS, DOWN = 16, 4  # threads of a workgroup along the columns and the rows
LONG_DECODE = 64  # operations: where decoding takes more, the text of four positions is enough
LEAST_ROWS = 4  # fewer rows than this are no matrix: GEMV is better

Point = dict[Expr, Expr | int]


@dataclass(frozen=True, slots=True)
class Matmul:
    """sums over k of left * right: `rows` index left alone, `columns` the rights alone, `batch` both."""

    found: Contraction
    left: Scalar
    rights: tuple[Scalar, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]


def matmul(program: Program) -> Matmul | None:
    """The program as a matrix multiplication with pointwise company, None if it is something else."""
    found = contraction(program)
    if found is None or not found.axes or len(found.terms) > 4:
        return None
    pairs = [pair for term in found.terms if (pair := _factors(found, term))]
    if len(pairs) < len(found.terms):
        return None
    if len({left for left, _ in pairs}) > 1:
        pairs = [(right, left) for left, right in pairs]  # several inputs of one matrix of weights
    left, rights = pairs[0][0], tuple(right for _, right in pairs)
    if any(other != left for other, _ in pairs):
        return None
    in_left = scalar_variables(left)
    in_right = frozenset[Var]().union(*map(scalar_variables, rights))
    rows = tuple(a for a in found.axes if a.var in in_left and a.var not in in_right)
    columns = tuple(a for a in found.axes if a.var in in_right and a.var not in in_left)
    if not rows or not columns or found.k not in in_left or found.k not in in_right:
        return None
    batch = tuple(a for a in found.axes if a not in rows and a not in columns)
    return Matmul(found, left, rights, rows, columns, batch)


def _factors(found: Contraction, term: Term) -> tuple[Scalar, Scalar] | None:
    """A term's (left, right): the last axis counts in the right one, if it counts in one alone."""
    if term.reducer.name != "sum":
        return None
    (value,) = term.values
    if not isinstance(value, Binary) or value.op != "mul" or value.dtype != "f32":
        return None
    last = found.axes[-1].var
    in_left, in_right = scalar_variables(value.left), scalar_variables(value.right)
    return (value.left, value.right) if last in in_right and last not in in_left else (value.right, value.left)


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
    height, width, batches = (product(a.extent for a in axes) for axes in (mm.rows, mm.columns, mm.batch))
    points = upper_bound(height * width * batches)
    blocks = 1
    if len(mm.rights) == 1 and (points is None or points // (TALL * 8) >= target.parallel_threads // 2):
        blocks = 2
    across = min(ACROSS, target.workgroup_invocations)
    down = min(DOWN, target.workgroup_invocations // across)
    columns = across * 4 * blocks
    grid = (ceildiv(width, columns), ceildiv(height, down * TALL), batches)
    body = Body(taken_names(program))
    thread = lane(across * down)
    row0 = body.let_index("row0", (bounded(GROUP[1], grid[1]) * down + thread // across) * TALL)
    quarter = body.let_index("quarter", bounded(GROUP[0], grid[0]) * (across * blocks) + thread % across)
    batch = _point(mm.batch, bounded(GROUP[2], batches))
    tile = _Tile(body, mm, batch, row0, quarter * 4, blocks, across * 4)
    with body.when(below(row0, height), below(quarter * 4, width)):
        tile.multiply()
        tile.store(program, height, width)
    return check_own_points(finish(program, body, across * down, grid), program)


def _last(extent: Expr) -> int | None:
    high = upper_bound(extent)
    return None if high is None else high - 1


def _point(axes: tuple[Axis, ...], flat: Expr) -> Point:
    where = unflatten(flat, [a.extent for a in axes])
    return {a.var: index for a, index in zip(axes, where, strict=True)}


class _Tile:
    """A thread's outputs: TALL rows from `row0`, and `blocks` times four columns, `apart` apart, from `column0`."""

    def __init__(
        self, body: Body, mm: Matmul, batch: Point, row0: Expr, column0: Expr, blocks: int, apart: int
    ) -> None:
        self.body, self.mm, self.batch, self.blocks, self.apart = body, mm, batch, blocks, apart
        self.row0, self.column0 = row0, column0
        self.sums: list[list[list[Local]]] = []  # [right][block][row], a vec4 of columns

    def _left(self, k: Expr, row: int) -> Scalar:
        return self.mm.found.at(self.mm.left, {**self.batch, **_point(self.mm.rows, self.row0 + row)}, k)

    def _right(self, right: Scalar, k: Expr, block: int, column: int) -> Scalar:
        at = self.column0 + block * self.apart + column
        return fields_in_place(self.mm.found.at(right, {**self.batch, **_point(self.mm.columns, at)}, k))

    def multiply(self) -> None:
        """Computes the sums."""
        found, rights = self.mm.found, self.mm.rights
        zero = Vector((Literal(0.0, "f32"),) * 4)
        self.sums = [[[self.body.register("s", zero) for _ in range(TALL)] for _ in range(self.blocks)] for _ in rights]
        is_long = sum(1 for right in rights for _ in nodes(right)) > LONG_DECODE
        inner, outer = runs(found, rights, 4 if is_long else ENOUGH)
        if inner < 4:
            inner = outer = 4
        with (
            self.body.loop("c", 0, found.length // outer) as c,
            self.body.loop("w", 0, outer // inner) as w,
        ):
            for quad in range(0, inner, 4):
                self._four(c * outer + w * inner + quad)
        if not is_multiple_of(found.length, outer):
            with self.body.loop("k", found.length // outer * outer, found.length) as k:
                self._one(k)

    def _four(self, k: Expr) -> None:
        """Adds four positions of the sum."""
        columns = self.mm.columns[-1].var
        matrices: list[tuple[list[Local], Local, bool]] = []
        for right, own in zip(self.mm.rights, self.sums, strict=True):
            along_columns = is_contiguous(self.mm.found, [right], columns)
            for block, sums in enumerate(own):
                values = [[self._right(right, k + e, block, c) for c in range(4)] for e in range(4)]
                if not along_columns:
                    values = [list(column) for column in zip(*values, strict=True)]
                matrix = self.body.let("m", Matrix(tuple(map(pack, values))))
                matrices.append((sums, matrix, along_columns))
        for row in range(TALL):
            x = self.body.let("x", pack([self._left(k + e, row) for e in range(4)]))
            for sums, matrix, along_columns in matrices:
                term = MatrixProduct(matrix, x) if along_columns else MatrixProduct(x, matrix)
                self.body.assign(sums[row], sums[row] + term)

    def _one(self, k: Expr) -> None:
        """Adds one position of the sum."""
        vectors = [
            (sums, self.body.let("m", pack([self._right(right, k, block, c) for c in range(4)])))
            for right, own in zip(self.mm.rights, self.sums, strict=True)
            for block, sums in enumerate(own)
        ]
        for row in range(TALL):
            x = self.body.let("x", self._left(k, row))
            for sums, vector in vectors:
                self.body.assign(sums[row], sums[row] + vector * Vector((x,) * 4))

    def store(self, program: Program, height: Expr, width: Expr) -> None:
        """Stores what is inside the edges."""
        body, mm = self.body, self.mm
        results = []
        for own in self.sums:
            rows = [sums for row in zip(*own, strict=True) for sums in row]
            results.append(body.registers("sums", [Lane(vector, at) for vector in rows for at in range(4)]))
        with body.loop("r", 0, TALL) as r:
            row = body.let_index("row", self.row0 + r, _last(height))
            with body.when(below(row, height)), body.loop("b", 0, self.blocks) as b, body.loop("e", 0, 4) as e:
                column = body.let_index("column", self.column0 + b * self.apart + e, _last(width))
                with body.when(below(column, width)):
                    point = {**self.batch, **_point(mm.rows, row), **_point(mm.columns, column)}
                    at = (r * self.blocks + b) * 4 + e
                    finish_point(body, program, mm.found, point, [[Element(own, at, "f32")] for own in results])
