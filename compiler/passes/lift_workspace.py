"""lift_workspace: long sums for few outputs are computed in parts, with a tensor between them (split-K)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..ir import (
    Atom,
    Binding,
    BlockBuilder,
    CallTIR,
    Function,
    Module,
    ModuleBuilder,
    Name,
    Names,
    Tensor,
    rewrite_bindings,
    splice,
    taken_names,
)
from ..schedule.contraction import contraction
from ..schedule.dots import MOST_ACROSS
from ..schedule.gemm import TALL, is_gemm
from ..schedule.lower import product
from ..symbolic import Expr, Var, as_expr, as_int, ceildiv, minimum, substitute, upper_bound
from ..target import Target
from ..tir import (
    Axis,
    Binary,
    Buffer,
    Literal,
    Load,
    Program,
    Select,
    Stage,
    free_symbols,
    less,
    substitute_scalar,
)
from ..tir.patterns import is_product_sum

LEAST_PART = 1024
"""Positions of a sum that are worth a thread: with fewer, the second dispatch costs more than the first one saves."""

MOST_PARTS = 16


def lift_workspace(module: Module, target: Target) -> Module:
    """Splits calls of sums of products that would leave a GPU idle into two: partial sums, and their sum.

    The workspace between the two is an ordinary tensor, and takes part in the memory plan. What is pointwise before
    the sums stays before them; what is behind them goes behind their sum. Whether a program is split follows from its
    extents and the target alone (`parts_of`).
    """
    builder = ModuleBuilder(module)
    splits = {name: split(program, parts_of(program, target)) for name, program in module.programs.items()}

    def lift(binding: Binding, names: Names) -> Iterable[Binding]:
        call = binding.value
        found = splits[call.program] if isinstance(call, CallTIR) else None
        if not isinstance(call, CallTIR) or found is None:
            return [binding]
        program = module.programs[call.program]
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
        args: dict[str, Atom] = {b.name: atom for b, atom in zip(program.inputs, call.args, strict=True)}
        block = BlockBuilder(names)
        workspace = tuple(Tensor([substitute(e, symbols) for e in b.shape], b.dtype) for b in found.partial.outputs)
        partial = block.emit(_call(builder, found.partial, args, workspace, symbols), "partial")
        args |= {b.name: _item(block, partial, at, workspace) for at, b in enumerate(found.partial.outputs)}
        total = block.emit(_call(builder, found.total, args, call.outputs, symbols), "total")
        return splice(binding, block.block(total))

    def lift_function(function: Function) -> Function:
        names = taken_names(function)
        return replace(function, body=rewrite_bindings(function.body, lambda binding: lift(binding, names)))

    functions = {name: f if f.fused else lift_function(f) for name, f in module.functions.items()}
    return replace(module, functions=functions, programs=builder.programs)


def _call(
    builder: ModuleBuilder,
    program: Program,
    args: Mapping[str, Atom],
    outputs: tuple[Tensor, ...],
    symbols: Mapping[Expr, Expr | int],
) -> CallTIR:
    given = tuple(args[b.name] for b in program.inputs)
    return CallTIR(
        builder.add_program(program), given, outputs, tuple(substitute(symbol, symbols) for symbol in program.symbols)
    )


def _item(block: BlockBuilder, value: Name, at: int, fields: Collection[Tensor]) -> Name:
    return value if len(fields) == 1 else block.get_item(value, at)


# --- whether ---


def parts_of(program: Program, target: Target) -> int:
    """In how many parts the sums of a program are computed; 1: as they are.

    In parts where a thread would add up two times LEAST_PART positions or more, and the kernel, at the bounds of the
    symbols, has less than half the threads that keep the target busy (`parallel_threads`). For a matrix of results a
    thread has a tile of them; for few rows, MOST_ACROSS threads share each sum as it is.
    """
    sums = _sums(program)
    if not sums:
        return 1
    length = upper_bound(product(a.extent for a in sums[0].reduce))
    results = upper_bound(product(a.extent for a in sums[0].spatial))
    if results is None:
        return 1
    if is_gemm(program):
        return parts_for(results // (TALL * 4), length, target.parallel_threads)
    own = None if length is None else length // MOST_ACROSS
    return parts_for(results * MOST_ACROSS, own, target.parallel_threads)


def parts_for(threads: int, length: int | None, wanted: int) -> int:
    """A power of two: as many parts as bring `threads` to the number wanted or just below, and leave each long enough.

    `length` is how many positions a thread adds up now, None where that has no bound.
    """
    parts = 1
    while parts < MOST_PARTS and threads * parts * 2 <= wanted and (length is None or length >= parts * 2 * LEAST_PART):
        parts *= 2
    return parts


def _sums(program: Program) -> list[Stage]:
    """The program's reductions, if they are sums of products over the same points that do not read each other."""
    found = contraction(program)
    if found is None or not all(is_product_sum(term.stage) for term in found.terms):
        return []
    return [term.stage for term in found.terms]


# --- how ---


@dataclass(frozen=True, slots=True)
class Split:
    """A program as two: `total` reads the outputs of `partial` beside the program's own inputs."""

    partial: Program
    total: Program


def split(program: Program, parts: int) -> Split | None:
    """The program with each of its sums of products computed in `parts` parts; None if that is one part."""
    if parts == 1:
        return None
    sums = {stage.outputs[0]: _parts_of_sum(program, stage, parts) for stage in _sums(program)}
    workspace = tuple(buffer for buffer, _, _ in sums.values())
    before = [sums[s.outputs[0]][1] if s.outputs[0] in sums else s for s in program.stages]
    behind = [sums[s.outputs[0]][2] if s.outputs[0] in sums else s for s in program.stages]
    partial = _live(program, f"{program.name}_partial", before, (), workspace)
    return Split(partial, _live(program, f"{program.name}_total", behind, workspace, program.outputs))


def _parts_of_sum(program: Program, stage: Stage, parts: int) -> tuple[Buffer, Stage, Stage]:
    """(workspace, the stage that computes partial sums into it, the stage that adds them up)."""
    taken = {a.var.name for a in (*stage.spatial, *stage.reduce)} | {v.name for v in program.symbols}
    part = Var(_fresh("part", taken), 0, parts - 1)
    axis = max(stage.reduce, key=lambda a: upper_bound(a.extent) or 1 << 31)
    whole = as_int(axis.extent)
    size = ceildiv(axis.extent, parts)
    last = upper_bound(size - 1)
    inner = Axis(Var(axis.var.name, 0, last), size)
    place = part * size + inner.var
    (value,) = stage.values
    assert isinstance(value, Binary)
    if whole is not None and whole % parts == 0:
        value = substitute_scalar(value, {axis.var: place})
    else:
        # Behind the end the last element is read, times zero: a packed or a stale one might be no number.
        inside = substitute_scalar(value, {axis.var: minimum(place, axis.extent - 1)})
        assert isinstance(inside, Binary)
        value = replace(inside, left=Select(less(place, axis.extent), inside.left, Literal(0.0, value.dtype)))
    name = _fresh(f"{stage.outputs[0]}_parts", {b.name for b in (*program.inputs, *program.outputs, *program.locals)})
    points = Axis(part, as_expr(parts))
    buffer = Buffer(name, (points.extent, *(a.extent for a in stage.spatial)), value.dtype)
    shorter = tuple(inner if a is axis else a for a in stage.reduce)
    partial = Stage((name,), (points, *stage.spatial), (part, *stage.indices), (value,), shorter, stage.reducer)
    total = replace(stage, values=(Load(name, (part, *stage.indices), value.dtype),), reduce=(points,))
    return buffer, partial, total


def _live(
    program: Program, name: str, stages: list[Stage], more: tuple[Buffer, ...], outputs: tuple[Buffer, ...]
) -> Program:
    """The program of the stages that the outputs need, with more inputs before its own."""
    needed, kept = {b.name for b in outputs}, []
    for stage in reversed(stages):
        if not needed.isdisjoint(stage.outputs):
            needed.update(load.buffer for load in stage.loads())
            kept.append(stage)
    made = {o for stage in kept for o in stage.outputs}
    in_place = tuple(pair for pair in program.in_place if pair[0] in made)
    needed.update(source for _, source in in_place)
    own = {b.name for b in outputs}
    result = Program(
        name,
        tuple(b for b in (*more, *program.inputs) if b.name in needed),
        outputs,
        tuple(kept[::-1]),
        tuple(b for b in (*program.locals, *program.outputs) if b.name in made - own),
        (),
        in_place,
    )
    return replace(result, symbols=free_symbols(result))


def _fresh(wish: str, taken: Collection[str]) -> str:
    name, number = wish, 0
    while name in taken:
        number += 1
        name = f"{wish}_{number}"
    return name
