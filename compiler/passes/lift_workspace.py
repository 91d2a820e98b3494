"""lift_workspace: long sums for few outputs are computed in parts, with a tensor of the graph between them (split-K)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from ..errors import WebrelaxError
from ..ir import (
    Atom,
    Binding,
    BlockBuilder,
    CallTIR,
    Function,
    Module,
    ModuleBuilder,
    Name,
    Tensor,
    rewrite_bindings,
    splice,
    taken_names,
)
from ..schedule import schedule
from ..schedule.contraction import contraction
from ..symbolic import Expr, Var, as_int, ceildiv, minimum, substitute, upper_bound
from ..target import Target
from ..tir import (
    SUM,
    Axis,
    Binary,
    Buffer,
    Literal,
    Load,
    Program,
    Scalar,
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

    def lift(binding: Binding, taken: set[str]) -> Iterable[Binding]:
        call = binding.value
        found = splits[call.program] if isinstance(call, CallTIR) else None
        if not isinstance(call, CallTIR) or found is None:
            return [binding]
        program = module.programs[call.program]
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
        args: dict[str, Atom] = {b.name: atom for b, atom in zip(program.inputs, call.args, strict=True)}
        block = BlockBuilder(taken)
        workspace = tuple(Tensor([substitute(e, symbols) for e in b.shape], b.dtype) for b in found.partial.outputs)
        partial = block.emit(_call(builder, found.partial, args, workspace, symbols), "partial")
        args |= {b.name: _item(block, partial, at, workspace) for at, b in enumerate(found.partial.outputs)}
        return splice(binding, block.block(block.emit(_call(builder, found.total, args, call.outputs, symbols), "total")))

    def lift_function(function: Function) -> Function:
        taken = taken_names(function)
        return replace(function, body=rewrite_bindings(function.body, lambda binding: lift(binding, taken)))

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

    In parts where a sum has at least two times LEAST_PART positions and the program's kernel, at the bounds of its
    symbols, has less than half the threads that the target wants (`parallel_threads`).
    """
    sums = _sums(program)
    length = upper_bound(prod_of(sums[0].reduce)) if sums else 0
    if length is not None and length < 2 * LEAST_PART:
        return 1
    try:
        kernel = schedule(program, target)
    except WebrelaxError:
        return 1
    groups = upper_bound(kernel.grid[0] * kernel.grid[1] * kernel.grid[2])
    if groups is None:
        return 1
    return parts_for(groups * prod(kernel.workgroup), length, target.parallel_threads)


def parts_for(threads: int, length: int | None, wanted: int) -> int:
    """A power of two: as many parts as make `threads` about the number that is wanted, each of LEAST_PART or more."""
    parts = 1
    while parts < MOST_PARTS and threads * parts * 2 <= wanted and (length is None or length >= parts * 2 * LEAST_PART):
        parts *= 2
    return parts


def prod_of(axes: Iterable[Axis]) -> Expr:
    """The number of points of a domain."""
    return prod((axis.extent for axis in axes), start=Literal_ONE)
