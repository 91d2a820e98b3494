"""From a program's scalars to a kernel's: flat indices, and local buffers computed again where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import WebrelaxError
from ..symbolic import Const, Expr, Opaque, Var, as_expr, as_int, ceildiv, map_opaque, minimum, upper_bound, walk
from ..target import Target
from ..tir import Axis, Buffer, Index, Load, Program, Scalar, Stage, rebuild, substitute_scalar
from .bits import possible_bits
from .body import Body, below
from .choice import choose
from .kernel import GROUP, Binding, Kernel
from .rewrite import loaded, rename_memory

Reader = Callable[[tuple[Expr, ...]], Scalar]


def flatten(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major position of an element."""
    flat = as_expr(0)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    return flat


def unflatten(flat: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The indices of a row-major position that lies inside the extents."""
    indices: list[Expr] = []
    for position, extent in reversed(list(enumerate(extents))):
        if as_int(extent) == 1:
            indices.append(as_expr(0))
        elif all(as_int(e) == 1 for e in extents[:position]):
            indices.append(flat)
            flat = as_expr(0)
        else:
            indices.append(flat % extent)
            flat = flat // extent
    return indices[::-1]


def product(extents: Iterable[Expr]) -> Expr:
    total = as_expr(1)
    for extent in extents:
        total = total * extent
    return total


def at_point(axes: Sequence[Axis], point: Sequence[Expr]) -> dict[Expr, Expr | int]:
    """The mapping that puts a point in the place of the loops."""
    return {axis.var: index for axis, index in zip(axes, point, strict=True)}


class Values:
    """Resolves a program's loads.

    A buffer in `held` is read by its reader (a register, a row's result, ...); a local or an output is computed again
    from the stage that defines it, at the point that is read; anything else is a load from memory. `on_reduction`
    computes one element of a reduction and may emit statements. A load from memory whose index is computed and has at
    most `choices` values becomes a choice among them.
    """

    def __init__(
        self,
        program: Program,
        body: Body,
        held: Mapping[str, Reader] | None = None,
        on_reduction: Callable[[Stage, tuple[Expr, ...]], Scalar] | None = None,
        choices: int = 1,
    ) -> None:
        self.program = program
        self._body = body
        self.held: dict[str, Reader] = dict(held or {})
        self._on_reduction = on_reduction
        self._choices = choices
        self._buffers = {b.name: b for b in (*program.inputs, *program.outputs, *program.locals)}
        self._stages = {name: stage for stage in program.stages for name in stage.outputs}

    def scalar(self, node: Scalar, mapping: Mapping[Expr, Expr | int] | None = None) -> Scalar:
        """The kernel's form of a scalar expression, with loop variables replaced."""
        if mapping:
            node = substitute_scalar(node, mapping)
        return self._resolve(node)

    def index(self, expr: Expr) -> Expr:
        """The kernel's form of an index: the loads inside it resolved."""

        def resolved(opaque: Opaque) -> Expr:
            value = self._resolve(loaded(opaque))
            if isinstance(value, Load):
                return Opaque(value, opaque.lower, opaque.upper)
            return value.expr if isinstance(value, Index) else self._body.let_loaded("at", value, opaque)

        return map_opaque(expr, resolved)

    def _resolve(self, node: Scalar) -> Scalar:
        if not isinstance(node, Load):
            return rebuild(node, self._resolve, self.index)
        if (choice := self._choice(node)) is not None:
            return choice
        indices = tuple(self.index(i) for i in node.indices)
        if node.buffer in self.held:
            return self.held[node.buffer](indices)
        if node.buffer in self._stages:
            return self._computed(node, self._stages[node.buffer], indices)
        return self.load(node.buffer, indices)

    def _choice(self, node: Load) -> Scalar | None:
        """A load from memory as a choice among few; None where it is something else."""
        if self._choices < 2 or node.buffer in self.held or node.buffer in self._stages:
            return None
        for opaque in (part for index in node.indices for part in walk(index) if isinstance(part, Opaque)):
            code = self._resolve(loaded(opaque))
            mask = possible_bits(code)
            if isinstance(code, Load | Index) or 1 << mask.bit_count() > self._choices:
                continue

            def entry(value: int, opaque: Opaque = opaque) -> Scalar:
                at = (map_opaque(i, lambda other: as_expr(value) if other == opaque else other) for i in node.indices)
                return self._resolve(Load(node.buffer, tuple(at), node.dtype))

            return choose(code, [at for at in range(32) if mask >> at & 1], entry)
        return None

    def load(self, buffer: str, indices: tuple[Expr, ...]) -> Load:
        """An element from memory."""
        declared = self._buffers[buffer]
        return Load(buffer, (flatten(indices, declared.shape),), declared.dtype)

    def _computed(self, node: Load, stage: Stage, indices: tuple[Expr, ...]) -> Scalar:
        if not stage.is_pointwise:
            raise WebrelaxError(
                f"{self.program.name}: {node.buffer} is read after a scatter wrote it, which one kernel cannot do; "
                "read it in a program of its own"
            )
        if stage.reducer is not None:
            if self._on_reduction is None:
                raise ValueError(f"{self.program.name}: {node.buffer} is a reduction")
            return self._on_reduction(stage, indices)
        value = stage.values[stage.outputs.index(node.buffer)]
        return self.scalar(value, at_point(stage.spatial, indices))


def launch(groups: Expr, target: Target) -> tuple[tuple[Expr, Expr, Expr], Expr, list[Scalar]]:
    """The grid for a number of workgroups, a workgroup's number, and the conditions under which it has work.

    More than a dimension of the grid can hold (or an unknown number) becomes two dimensions.
    """
    one = as_expr(1)
    high = upper_bound(groups)
    if high is not None and high <= target.grid:
        return (groups, one, one), bounded(GROUP[0], groups), []
    grid = (minimum(groups, target.grid), ceildiv(groups, target.grid), one)
    number = GROUP[1] * target.grid + GROUP[0]
    return grid, number, [below(number, groups)]


def bounded(var: Var, extent: Expr) -> Expr:
    """A place in the grid with the bounds that the grid's size gives it; 0 where the size is 1."""
    high = upper_bound(extent)
    if high == 1:
        return Const(0)
    return Var(var.name, 0, None if high is None else max(high - 1, 0))


def finish(program: Program, body: Body, workgroup: int, grid: tuple[Expr, Expr, Expr]) -> Kernel:
    """The kernel of a finished body. Outputs that overwrite an input become accesses to that input."""
    sources = dict(program.in_place)
    written = {sources.get(b.name, b.name) for b in program.outputs}
    visible = (*program.inputs, *(b for b in program.outputs if b.name not in sources))
    bindings = tuple(Binding(b, b.name in written) for b in visible)
    return Kernel(
        program.name,
        bindings,
        program.symbols,
        (workgroup, 1, 1),
        grid,
        tuple(body.shared),
        rename_memory(body.finish(), sources),
    )


def taken_names(program: Program) -> list[str]:
    """What a kernel's own names must not collide with."""
    buffers: tuple[Buffer, ...] = (*program.inputs, *program.outputs, *program.locals)
    return [*(b.name for b in buffers), *(s.name for s in program.symbols), *(g.name for g in GROUP), "lane"]
