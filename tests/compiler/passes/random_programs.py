"""Random modules for the memory planner: operators, tuples, casts, choices, calls, several results, in-place writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    BlockBuilder,
    Function,
    FunctionBuilder,
    Module,
    ModuleBuilder,
    Name,
    ShapeValue,
    Tensor,
    print_function,
    reference,
)
from webrelax.compiler.ops import product
from webrelax.compiler.passes import legalize
from webrelax.compiler.symbolic import Expr, Var, as_expr, as_int, evaluate
from webrelax.compiler.tir import Program, ProgramBuilder

from ..ops.cases import Array, f32, i32

CACHE, ROWS = (1, 5, 1, 2), (2, 2)
MOST_ELEMENTS, MOST_ROWS, LARGEST = 2000, 64, 5

Draw = Callable[[Sequence[Any]], Any]


@dataclass
class Scope:
    """What a block may use: matrices, tuples of two of them, and caches that it may overwrite."""

    builder: BlockBuilder
    values: list[Name]
    caches: list[Name]
    tuples: list[Name] = field(default_factory=list)
    is_arm: bool = False


@dataclass
class RandomModule:
    """A module under construction. `largest` has the most that each variable is in a run, which may be its bound."""

    draw: Draw
    modules: ModuleBuilder = field(default_factory=ModuleBuilder)
    largest: dict[Var, int] = field(default_factory=dict)
    helpers: list[Function] = field(default_factory=list)

    def variable(self, name: str, lower: int, largest: int) -> Var:
        variable = Var(name, lower, self.draw([None, largest]))
        self.largest[variable] = largest
        return variable

    def elements(self, *extents: Expr) -> int:
        """The product of extents when every variable is as large as it gets."""
        return evaluate(product(extents), self.largest)

    def main(self, operators: int) -> Module:
        """A function `main` of x: [n, 4], y: [m, 2], z: [2, 2], of unknown shape u, and of two caches."""
        n, m = self.variable("n", 1, LARGEST), self.variable("m", 0, LARGEST)
        b = FunctionBuilder("main")
        self.flag, self.positions, self.zeros = b.param("flag", i32()), b.param("at", i32(2)), b.param("zeros", i32(2))
        values = [b.param("x", f32(n, 4)), b.param("y", f32(m, 2)), b.param("z", f32(*ROWS))]
        unknown = b.param("u", Tensor(dtype="f32", ndim=2))
        cache = b.param("cache", f32(*CACHE))
        scope = Scope(b, [*values, self.cast(b, unknown, LARGEST, as_expr(2))], [cache])
        for _ in range(operators):
            self.grow(scope, 2)
        results = [self.draw(scope.values) for _ in range(self.draw([1, 2, 3]))]
        if scope.caches[0] != cache:
            function = b.finish(*results, scope.caches[0], consumed=[(7, len(results))])
        else:
            function = b.finish(*results)
        self.modules.add_function(function)
        return legalize(self.modules.finish())

    def cast(self, b: BlockBuilder, value: Name, largest: int, columns: Expr) -> Name:
        """Names the rows of a matrix of unknown height."""
        return b.match_cast(value, f32(self.variable(f"k{len(self.largest)}", 0, largest), columns))

    def add(self, scope: Scope, value: Name) -> None:
        """Keeps a matrix unless it is too large."""
        if self.elements(*dims(value)) <= MOST_ELEMENTS:
            scope.values.append(value)

    def grow(self, scope: Scope, depth: int) -> None:
        """Adds one random binding, or a few."""
        b, x = scope.builder, self.draw(scope.values)
        rows, columns = dims(x)
        kind = self.draw(
            ["unary", "unary", "binary", "linear", "transpose", "reshape", "reduce", "concat", "both", "tuple", "item"]
            + ["copy", "append", "append", "read", "join"]
            + ["if", "if", "if", "call", "call", "call", "choose"] * (depth > 0)
        )
        match kind:
            case "unary":
                self.add(scope, b.op(self.draw([ops.relu, ops.negate, ops.tanh]), x))
            case "binary":
                self.add(scope, b.op(ops.subtract, x, self.draw([v for v in scope.values if dims(v) == dims(x)])))
            case "linear":
                other = self.draw([v for v in scope.values if dims(v)[1] == columns])
                if self.elements(rows, dims(other)[0]) <= MOST_ELEMENTS:
                    self.add(scope, b.op(ops.linear, x, other))
            case "transpose":
                self.add(scope, b.op(ops.transpose, x, axes=(1, 0)))
            case "reshape":
                self.add(scope, b.op(ops.reshape, x, ShapeValue(self.draw([(columns, rows), (rows * columns, 1)]))))
            case "reduce" if as_int(columns):
                self.add(scope, b.op(ops.reshape, b.op(ops.row_sum, x), ShapeValue((rows, as_expr(1)))))
            case "concat" if self.elements(*dims(x)) * 2 <= MOST_ELEMENTS:
                other = self.draw([v for v in scope.values if dims(v)[1] == columns])
                self.add(scope, b.op(ops.concat, x, other, axis=0))
            case "both":
                pair = b.emit(self.modules.call_tir(two_results(rows, columns), (x,)), "both")
                self.add(scope, b.get_item(pair, self.draw([0, 1])))
                scope.tuples.append(pair)
            case "tuple":
                scope.tuples.append(b.make_tuple(x, self.draw(scope.values)))
            case "item" if scope.tuples:
                self.add(scope, b.get_item(self.draw(scope.tuples), self.draw([0, 1])))
            case "copy":
                scope.caches.append(b.op(ops.relu, self.draw(scope.caches)))
            case "append":
                self.append(scope)
            case "read":
                self.add(scope, b.op(ops.reshape, self.draw(scope.caches), ShapeValue((as_expr(5), as_expr(2)))))
            case "join" if self.elements(*dims(x)) * 2 <= MOST_ELEMENTS:
                self.join(scope, x)
            case "if":
                self.choice(scope, x, depth)
            case "choose":
                self.choose_cache(scope)
            case "call":
                self.call(scope, x, depth)

    def append(self, scope: Scope) -> None:
        """Overwrites rows of a cache, perhaps one that the function was given."""
        at = self.overwritable(scope)
        if at is not None:
            scope.caches[at] = self.appended(scope, scope.caches[at])

    def overwritable(self, scope: Scope) -> int | None:
        """A cache; in an arm none that may be the function's own, which has to be there behind it."""
        first = int(scope.is_arm)
        return self.draw(range(first, len(scope.caches))) if len(scope.caches) > first else None

    def appended(self, scope: Scope, cache: Name) -> Name:
        b, new = scope.builder, self.draw([v for v in scope.values if tuple(map(as_int, dims(v))) == ROWS])
        new = b.op(ops.reshape, new, ShapeValue((as_expr(2), as_expr(1), as_expr(2))))
        if self.draw([True, False]):
            return b.op(ops.kv_append, cache, new, self.positions, self.zeros)
        pair = b.emit(self.modules.call_tir(append_and_copy(), (new, cache, self.positions)), "appended")
        if self.draw([True, False]):
            scope.caches.append(b.get_item(pair, 1))
        return b.get_item(b.get_item(b.make_tuple(pair, new), 0), 0)

    def join(self, scope: Scope, x: Name) -> None:
        """A matrix of a height that only the run tells."""
        b, columns = scope.builder, dims(x)[1]
        then, orelse = b.arm(), b.arm()
        taller = then.block(then.op(ops.concat, x, then.op(ops.relu, x), axis=0))
        chosen = b.if_else(self.flag, taller, orelse.block(self.draw([x, orelse.op(ops.relu, x)])))
        scope.values.append(self.cast(b, chosen, self.elements(dims(x)[0]) * 2, columns))

    def choice(self, scope: Scope, x: Name, depth: int) -> None:
        """An `if` with random arms, that gives a matrix of the shape of x or a pair of them."""
        pair = self.draw([True, False])
        blocks, kept = [], scope.caches
        for _ in range(2):
            b = scope.builder.arm()
            arm = Scope(b, list(scope.values), list(scope.caches), list(scope.tuples), True)
            for _ in range(self.draw([0, 1, 2, 3])):
                self.grow(arm, depth - 1)
            first, second = (self.draw([v for v in arm.values if dims(v) == dims(x)]) for _ in range(2))
            blocks.append(b.block(b.make_tuple(first, second) if pair else first))
            # What an arm overwrote is gone; the cache that the function was given stays, see `append`.
            kept = [cache for cache in kept if cache in arm.caches]
        scope.caches[:] = kept
        chosen = scope.builder.if_else(self.flag, blocks[0], blocks[1])
        if pair:
            scope.tuples.append(chosen)
        else:
            self.add(scope, chosen)

    def choose_cache(self, scope: Scope) -> None:
        """An `if` of which one arm overwrites a cache, or both do."""
        at = self.overwritable(scope)
        if at is None:
            return
        blocks = []
        for changes in (True, self.draw([True, False])):
            b = scope.builder.arm()
            arm = Scope(b, list(scope.values), list(scope.caches))
            blocks.append(b.block(self.appended(arm, scope.caches[at]) if changes else scope.caches[at]))
        scope.caches[at] = scope.builder.if_else(self.flag, blocks[0], blocks[1])

    def call(self, scope: Scope, x: Name, depth: int) -> None:
        """Calls a function of [p, 4] and a cache that it overwrites, which gives the cache and two matrices."""
        given = [v for v in scope.values if as_int(dims(v)[1]) == 4 and self.elements(dims(v)[0]) <= MOST_ROWS]
        at = self.overwritable(scope)
        if at is None or not given:
            return
        helper = self.draw([*self.helpers, None]) or self.helper(depth)
        args = (self.draw(given), scope.caches[at], self.flag, self.positions, self.zeros)
        result = scope.builder.call(reference(helper), *args)
        scope.caches[at] = scope.builder.get_item(result, 0)
        scope.tuples.append(scope.builder.get_item(result, 1))

    def helper(self, depth: int) -> Function:
        p = self.variable(f"p{len(self.largest)}", 0, MOST_ROWS)
        b = FunctionBuilder(f"helper_{p.name}")
        mine = self.flag, self.positions, self.zeros
        x, cache = b.param("x", f32(p, 4)), b.param("cache", f32(*CACHE))
        self.flag, self.positions, self.zeros = b.param("flag", i32()), b.param("at", i32(2)), b.param("zeros", i32(2))
        rows = b.op(ops.reshape, cache, ShapeValue((as_expr(5), as_expr(2))))
        scope = Scope(b, [x, rows, b.op(ops.take, rows, self.positions)], [cache])
        scope.caches[0] = self.appended(scope, cache)
        for _ in range(self.draw([0, 1, 2, 3, 4])):
            self.grow(scope, depth - 1)
        same = [v for v in scope.values if dims(v) == dims(x)]
        pair = b.make_tuple(self.draw(same), self.draw(same))
        function = b.finish(scope.caches[0], pair, consumed=[(1, 0)])
        self.flag, self.positions, self.zeros = mine
        self.helpers.append(function)
        self.modules.add_function(function)
        return function


def dims(value: Name) -> tuple[Expr, ...]:
    assert isinstance(value.annotation, Tensor)
    assert value.annotation.shape is not None
    return value.annotation.shape


def two_results(rows: Expr, columns: Expr) -> Program:
    b = ProgramBuilder("both")
    x = b.input("x", (rows, columns), "f32")
    first = b.compute("first", (rows, columns), lambda i, j: x[i, j] + 1.0)
    return b.finish(first, b.compute("second", (columns, rows), lambda i, j: x[j, i] * 2.0))


def append_and_copy() -> Program:
    """Overwrites a cache and computes another one from what is written."""
    b = ProgramBuilder("append_and_copy")
    new, cache, positions = b.input("new", (2, 1, 2), "f32"), b.input("cache", CACHE, "f32"), b.input("at", (2,), "i32")
    target = b.scatter("after", cache, (2, 2), lambda i, d: (0, positions[i], 0, d), lambda i, d: new[i, 0, d])
    copy = b.compute("copy", CACHE, lambda _, i, h, d: new[i % 2, h, d] * 3.0)
    return b.finish(target, copy)


def arguments(n: int, m: int, k: int, flag: int) -> list[Array]:
    """Arrays for `main`."""
    rng = np.random.default_rng(n + 10 * m)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    integers = [np.asarray(a, np.int32) for a in (flag, rng.permutation(5)[:2], [0, 0])]
    return [*integers, normal(n, 4), normal(m, 2), normal(*ROWS), normal(k, 2), normal(*CACHE)]


@dataclass(frozen=True)
class Random:
    """A legalized module with a function `main`: see `arguments`."""

    module: Module

    def __repr__(self) -> str:
        return "\n".join(map(print_function, self.module.functions.values()))


@st.composite
def modules(draw: st.DrawFn) -> Random:
    """Random modules."""
    operators = draw(st.integers(1, 16))
    return Random(RandomModule(lambda choices: draw(st.sampled_from(list(choices)))).main(operators))
