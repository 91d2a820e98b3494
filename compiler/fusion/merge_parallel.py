"""merge_parallel: independent calls that read the same tensor become one kernel, side by side."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..ir import (
    Atom,
    Binding,
    Block,
    CallTIR,
    Function,
    GetItem,
    MatchCast,
    Module,
    ModuleBuilder,
    Name,
    Ownership,
    Tensor,
    Tuple,
    atoms,
    origins,
)
from ..ir.liveness import deep_atoms
from ..schedule import combining_refusal
from ..symbolic import Expr, substitute
from ..target import Target
from ..tir import Buffer, Program
from .merge import Part, merge


def merge_parallel(module: Module, target: Target) -> Module:
    """Joins calls of which none needs another's result: query, key and value projections; the two appends to a cache.

    A later call moves up to an earlier one that shares an input with it, if what it reads is there by then, nothing in
    between writes what it reads or reads what it writes, and one kernel may bind all their buffers. The values stay the
    same; each old result is a field of the new one.
    """
    builder = ModuleBuilder(module)
    functions = {}
    for name, function in module.functions.items():
        ownership = Ownership(module, function)
        block = function.body
        if not function.fused:
            block = _Merging(builder, target, block, ownership).run()
        functions[name] = replace(function, body=block)
    return replace(module, functions=functions, programs=builder.programs)


def explain_parallel(module: Module, target: Target, function: Function, names: Collection[str]) -> dict[str, str]:
    """Why some of the named calls of a function do not run beside an earlier one of them with the same input."""
    bindings = tuple(b for b in function.body.bindings if b.name.name in names)
    merging = _Merging(
        ModuleBuilder(module), target, Block(bindings, function.body.result), Ownership(module, function)
    )
    merging.run()
    return merging.refusals


FARTHEST = 8
"""How many other bindings a call may move over."""


class _Merging:
    def __init__(self, builder: ModuleBuilder, target: Target, block: Block, ownership: Ownership) -> None:
        self.builder, self.target, self.block, self.ownership = builder, target, block, ownership
        self.where = {b.name.name: at for at, b in enumerate(block.bindings)}
        self.refusals: dict[str, str] = {}

    def run(self) -> Block:
        bindings = self.block.bindings
        taken: set[int] = set()
        result: list[Binding] = []
        for at, first in enumerate(bindings):
            if at in taken:
                continue
            partners = self._partners(at, taken) if isinstance(first.value, CallTIR) else []
            taken.update(partners)
            result += self._joined([first, *(bindings[p] for p in partners)]) if partners else [first]
        return Block(tuple(result), self.block.result)

    def _partners(self, first: int, taken: Collection[int]) -> list[int]:
        """The later calls that may run beside the first one, in order."""
        bindings = self.block.bindings
        group, partners = [bindings[first]], list[int]()
        passed: list[Binding] = []
        for at in range(first + 1, len(bindings)):
            candidate = bindings[at]
            if at in taken:
                continue
            if self._fits(group, passed, candidate):
                group.append(candidate)
                partners.append(at)
            else:
                passed.append(candidate)
            # A call far away would only keep its result alive for long; a match_cast may bind what later shapes use.
            if len(passed) >= FARTHEST or isinstance(candidate.value, MatchCast):
                break
        return partners

    def _fits(self, group: Sequence[Binding], passed: Sequence[Binding], candidate: Binding) -> bool:
        if not isinstance(candidate.value, CallTIR) or not _share_input(group[0], candidate):
            return False
        made = {b.name.name for b in (*group, *passed)}
        if any(isinstance(a, Name) and a.name in made for a in candidate.value.args):
            return False
        refusal = self._refusal(group, passed, candidate)
        if refusal is not None:
            self.refusals.setdefault(candidate.name.name, f"not beside {group[0].name.name}: {refusal}")
        return refusal is None

    def _refusal(self, group: Sequence[Binding], passed: Sequence[Binding], candidate: Binding) -> str | None:
        """Why a call that shares an input with the group, and needs nothing of it, may not run beside it."""
        for binding in (*group, *passed):
            if self._touches(binding, candidate):
                return f"{binding.name.name} or it overwrites what the other uses"
        program, args = self._merged([*group, candidate])
        buffers = len(args) + len(program.outputs) - len(program.in_place)
        if buffers > self.target.storage_buffers:
            return f"the kernel would bind {buffers} buffers, {self.target.storage_buffers} are allowed"
        return combining_refusal(program, self.target)

    def _touches(self, a: Binding, b: Binding) -> bool:
        """Whether one call overwrites memory that the other reads or overwrites."""
        read_a, read_b = (
            frozenset[str]().union(*(origins(self.ownership.memory(x)) for x in deep_atoms(binding)))
            for binding in (a, b)
        )
        written_a, written_b = self.ownership.writes[a.name.name], self.ownership.writes[b.name.name]
        return bool(written_a & read_b or written_b & read_a)

    def _joined(self, group: Sequence[Binding]) -> list[Binding]:
        """The merged call, and its fields under the old names."""
        program, args = self._merged(group)
        outputs = tuple(o for b in group if isinstance(b.value, CallTIR) for o in b.value.outputs)
        name = Name(f"{group[0].name.name}_and_{len(group) - 1}", Tuple(outputs))
        call = CallTIR(self.builder.add_program(program), args, outputs, program.symbols)
        fields = [Binding(b.name, GetItem(name, at)) for at, b in enumerate(group)]
        return [Binding(name, call), *fields]

    def _merged(self, group: Sequence[Binding]) -> tuple[Program, tuple[Atom, ...]]:
        """The program that does the group's calls, and its arguments."""
        args: dict[Atom, Buffer] = {}
        parts: list[Part] = []
        results: list[Buffer] = []
        names: list[str] = []
        for binding in group:
            call = binding.value
            assert isinstance(call, CallTIR)
            program = self.builder.programs[call.program]
            symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
            for buffer, atom in zip(program.inputs, call.args, strict=True):
                shape = tuple(substitute(e, symbols) for e in buffer.shape)
                args.setdefault(atom, Buffer(f"p{len(args)}", shape, buffer.dtype))
            outputs: list[Buffer] = []
            for buffer, annotation in zip(program.outputs, call.outputs, strict=True):
                assert isinstance(annotation, Tensor)
                shape = tuple(substitute(e, symbols) for e in buffer.shape)
                outputs.append(Buffer(f"y{len(results) + len(outputs)}", shape, buffer.dtype))
            inputs = tuple(args[a].name for a in call.args)
            parts.append(Part(program, inputs, tuple(o.name for o in outputs), call.sym_args))
            results += outputs
            names.append(call.program)
        return merge("_and_".join(dict.fromkeys(names)), parts, tuple(args.values()), results), tuple(args)


def _share_input(a: Binding, b: Binding) -> bool:
    """Whether two calls with one result each read the same tensor of the function."""
    both = [x.value for x in (a, b) if isinstance(x.value, CallTIR) and len(x.value.outputs) == 1]
    if len(both) != 2:
        return False
    first, second = ({x for x in atoms(v) if isinstance(x, Name)} for v in both)
    return bool(first & second)
