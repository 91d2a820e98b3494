"""fuse_ops: moves calls of tensor programs that one kernel can do into functions of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..ir import (
    Atom,
    Binding,
    Block,
    BlockBuilder,
    CallFunction,
    CallTIR,
    Function,
    FunctionRef,
    If,
    Module,
    Name,
    Names,
    Ownership,
    Shape,
    ShapeValue,
    annotation_variables,
    dimensions,
    map_atoms,
    reference,
)
from ..symbolic import Expr, Var, variables
from ..target import Target
from ..tir import classify
from .grouping import Grouping


def fuse_ops(module: Module, target: Target) -> Module:
    """Moves each group of calls into a function of its own, marked `fused`, which `fuse_tir` makes one program.

    A producer joins the group that holds all its uses. Injective and cheap elementwise producers go into a consumer's
    loads; elementwise consumers go onto a reduction's or a matmul's result; a group has one reduction. Nothing moves
    over an in-place write of what it reads, and a group binds no more buffers than a kernel may.
    """
    fusion = _Fusion(module, target)
    functions = {name: f if f.fused else fusion.fuse(f) for name, f in module.functions.items()}
    return module.with_functions({**functions, **fusion.created})


class _Fusion:
    def __init__(self, module: Module, target: Target) -> None:
        self.module, self.target = module, target
        self.kinds = {name: classify(program) for name, program in module.programs.items()}
        self.created: dict[str, Function] = {}
        self._known: dict[Function, str] = {}
        self._names = Names(module.functions)

    def fuse(self, function: Function) -> Function:
        return replace(function, body=self._block(function.body, Ownership(self.module, function)))

    def _block(self, block: Block, ownership: Ownership) -> Block:
        groups = Grouping(self.module, self.kinds, self.target, block, ownership).run()
        inner = {at for root, members in groups.items() for at in members if at != root}
        kept = []
        for at, binding in enumerate(block.bindings):
            if at in inner:
                continue
            if at in groups:
                binding = replace(binding, value=self._outline([block.bindings[member] for member in groups[at]]))
            elif isinstance(binding.value, If):
                arms = (self._block(arm, ownership) for arm in (binding.value.then, binding.value.orelse))
                binding = replace(binding, value=If(binding.value.condition, *arms))
            kept.append(binding)
        return Block(tuple(kept), block.result)

    def _outline(self, parts: Sequence[Binding]) -> CallFunction:
        """A call of a fused function that holds the given bindings; equal groups share it."""
        own = {b.name.name for b in parts}
        builder = BlockBuilder()
        outside: dict[Atom, Name] = {}
        renamed: dict[str, Name] = {}

        def inside(atom: Atom) -> Atom:
            if isinstance(atom, Name) and atom.name in own:
                return renamed[atom.name]
            if atom not in outside:
                outside[atom] = Name(builder.fresh(f"p{len(outside)}"), atom.annotation)
            return outside[atom]

        for binding in parts:
            value = map_atoms(binding.value, inside)
            assert isinstance(value, CallTIR)
            renamed[binding.name.name] = builder.emit(value, _base(value.program))
        params, args = list(outside.values()), list(outside)
        missing = _unbound(parts, params)
        if missing:
            # Relax, fig. 8: what the parameters do not carry becomes an extra shape parameter.
            params.append(Name(builder.fresh("symbols"), Shape(missing)))
            args.append(ShapeValue(missing))
        result = renamed[parts[-1].name.name]
        consumed = self._consumed(parts[-1], list(outside))
        block = builder.block(result)
        function = Function("", tuple(params), block, result.annotation, consumed, fused=True)
        return CallFunction(
            self._add(function, "fused_" + "_".join(_base(b.name.name) for b in block.bindings)), tuple(args)
        )

    def _consumed(self, root: Binding, outside: list[Atom]) -> tuple[tuple[int, int], ...]:
        """Only the last member may write in place: a producer that does is opaque, and joins no group."""
        call = root.value
        assert isinstance(call, CallTIR)
        program = self.module.programs[call.program]
        inputs, outputs = [b.name for b in program.inputs], [b.name for b in program.outputs]
        return tuple(
            (outside.index(call.args[inputs.index(source)]), outputs.index(out)) for out, source in program.in_place
        )

    def _add(self, function: Function, base: str) -> FunctionRef:
        if function not in self._known:
            name = self._known[function] = self._names.fresh(base)
            self.created[name] = replace(function, name=name)
        return reference(self.created[self._known[function]])


def _base(name: str) -> str:
    """A name without the number that tells it from others."""
    return re.sub(r"_\d+$", "", name)


def _unbound(parts: Sequence[Binding], params: Sequence[Name]) -> tuple[Expr, ...]:
    """The variables that the parts use and the parameters do not bind, by name."""
    used: set[Var] = set()
    for binding in parts:
        assert isinstance(binding.value, CallTIR)
        used |= annotation_variables(binding.name.annotation)
        used.update(v for e in binding.value.sym_args for v in variables(e))
    for param in params:
        used |= annotation_variables(param.annotation)
    bound = {d for p in params for d in dimensions(p.annotation) if isinstance(d, Var)}
    return tuple(sorted(used - bound, key=lambda v: v.name))
