"""Builds the statements of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ..symbolic import Expr, Opaque, Var, as_expr, as_int, lower_bound, upper_bound
from ..tir import Compare, Index, Reducer, Scalar, Select
from ..tir import maximum as scalar_maximum
from ..tir import minimum as scalar_minimum
from .kernel import Assign, Barrier, Block, For, If, Let, Register, Shared, Statement, Store
from .nodes import Element, Local


class Body:
    """Statements under construction. Names that it gives are unique in the kernel."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._open: list[list[Statement]] = [[]]
        self._names = set(taken)
        self.shared: list[Shared] = []

    def name(self, wish: str) -> str:
        """`wish`, or `wish` with a number behind it if it is taken."""
        name, count = wish, 1
        while name in self._names:
            name, count = f"{wish}_{count}", count + 1
        self._names.add(name)
        return name

    def add(self, statement: Statement) -> None:
        self._open[-1].append(statement)

    def let(self, name: str, value: Scalar) -> Local:
        local = Local(self.name(name), value.dtype)
        self.add(Let(local, value))
        return local

    def let_index(self, name: str, value: Expr, upper: int | None = None) -> Var:
        """An integer by name. `upper` is a bound that holds wherever the result matters."""
        bounds = [b for b in (upper_bound(value), upper) if b is not None]
        lower = lower_bound(value)
        high = min(bounds, default=None)
        var = Var(self.name(name), lower, high if lower is None or high is None else max(high, lower - 1))
        self.add(Let(var, value))
        return var

    def let_loaded(self, name: str, value: Scalar, bounds: Opaque) -> Var:
        """A run-time integer as an index, by name."""
        var = Var(self.name(name), bounds.lower, bounds.upper)
        self.add(Let(var, value))
        return var

    def register(self, name: str, value: Scalar) -> Local:
        local = Local(self.name(name), value.dtype)
        self.add(Register(local.name, local.type, (value,)))
        return local

    def registers(self, name: str, values: Sequence[Scalar]) -> str:
        """A register array with these elements; returns its name."""
        unique = self.name(name)
        self.add(Register(unique, values[0].dtype, tuple(values)))
        return unique

    def assign(self, target: Local | Element, value: Scalar) -> None:
        self.add(Assign(target, value))

    def store(self, buffer: str, index: Expr, value: Scalar) -> None:
        self.add(Store(buffer, index, value))

    def barrier(self) -> None:
        self.add(Barrier())

    def shared_array(self, name: str, dtype: str, size: int) -> str:
        unique = self.name(name)
        self.shared.append(Shared(unique, dtype, size))
        return unique

    @contextmanager
    def loop(self, name: str, start: Expr | int, stop: Expr | int, step: Expr | int = 1) -> Iterator[Expr]:
        """for var = start; var < stop; var += step. Bounds of var follow from the range; one iteration is no loop."""
        if as_int(as_expr(stop) - start) == 1:
            yield as_expr(start)
            return
        low, high = lower_bound(as_expr(start)), upper_bound(as_expr(stop) - 1)
        bounds = (low, high if low is None or high is None else max(high, low - 1))
        var = Var(self.name(name), *bounds)
        self._open.append([])
        yield var
        body = tuple(self._open.pop())
        self.add(For(var, as_expr(start), as_expr(stop), as_expr(step), body))

    @contextmanager
    def when(self, *conditions: Scalar) -> Iterator[None]:
        """The statements inside run where all conditions hold; without conditions, always."""
        if not conditions:
            yield
            return
        self._open.append([])
        yield
        body = tuple(self._open.pop())
        for condition in reversed(conditions):
            body = (If(condition, body),)
        self.add(body[0])

    def finish(self) -> Block:
        (statements,) = self._open
        return tuple(statements)


def below(a: Expr | int, b: Expr | int) -> Scalar:
    """The condition a < b."""
    return Compare("lt", Index(as_expr(a)), Index(as_expr(b)))


def combine(reducer: Reducer, old: Sequence[Scalar], new: Sequence[Scalar]) -> list[Scalar]:
    """The combination of two (partial) reductions, value by value."""
    match reducer.name:
        case "sum":
            return [old[0] + new[0]]
        case "max":
            return [scalar_maximum(old[0], new[0])]
        case "min":
            return [scalar_minimum(old[0], new[0])]
        case "argmax":
            # Ties go to the smaller index, in whatever order partial results meet.
            tie = Compare("lt", new[1], old[1])
            equal = Compare("eq", new[0], old[0])
            better = Select(equal, tie, Compare("lt", old[0], new[0]))
            return [scalar_maximum(old[0], new[0]), Select(better, new[1], old[1])]
    raise ValueError(f"no reducer {reducer.name}")


def start(body: Body, reducer: Reducer, name: str = "acc") -> list[Local]:
    """Registers that hold the reducer's identities."""
    return [body.register(name if at == 0 else f"{name}_at", i) for at, i in enumerate(reducer.identities)]


def accumulate(body: Body, reducer: Reducer, into: Sequence[Local], values: Sequence[Scalar]) -> None:
    """into = combine(into, values)."""
    if len(into) > 1:
        # All old values are read before the first is overwritten.
        values = [body.let("candidate", v) for v in values]
        combined = combine(reducer, into, values)
        for target, value in reversed(list(zip(into, combined, strict=True))):
            body.assign(target, value)
    else:
        body.assign(into[0], combine(reducer, into, values)[0])


def workgroup_reduce(
    body: Body, reducer: Reducer, partial: Sequence[Local], lane: Expr, group: Expr, across: int, groups: int
) -> list[Local]:
    """Combines the partial results of `across` threads, whose place among them is `lane`, in each of `groups` groups.

    All threads of the workgroup get their group's result. One barrier where few threads take part, else two: a thread
    then reads about 2 * sqrt(across) elements instead of waiting log2(across) times.
    """
    if across == 1:
        return list(partial)
    arrays = [body.shared_array("parts", p.type, across * groups) for p in partial]
    for array, value in zip(arrays, partial, strict=True):
        body.assign(Element(array, group * across + lane, value.type), value)
    body.barrier()
    if across <= 32:
        return _serial(body, reducer, arrays, partial, group * across, 1, across)
    outer = 1 << (across.bit_length() // 2)
    seconds = [body.shared_array("parts", p.type, outer * groups) for p in partial]
    with body.when(below(lane, outer)):
        sums = _serial(body, reducer, arrays, partial, group * across + lane, outer, across // outer)
        for array, value in zip(seconds, sums, strict=True):
            body.assign(Element(array, group * outer + lane, value.type), value)
    body.barrier()
    return _serial(body, reducer, seconds, partial, group * outer, 1, outer)


def _serial(
    body: Body, reducer: Reducer, arrays: Sequence[str], like: Sequence[Local], first: Expr, stride: int, count: int
) -> list[Local]:
    totals = [body.register("total", Element(array, first, p.type)) for array, p in zip(arrays, like, strict=True)]
    with body.loop("t", 1, count) as t:
        elements = [Element(a, first + t * stride, p.type) for a, p in zip(arrays, like, strict=True)]
        accumulate(body, reducer, totals, elements)
    return totals
