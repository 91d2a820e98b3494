"""fuse_ops: groups calls of tensor programs that one kernel can do (Relax, algorithm 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir import (
    Atom, Binding, Block, BlockBuilder, CallFunction, CallTIR, Function, FunctionRef, Module, Name, ShapeValue, Tensor,
    annotation_variables, atoms, map_atoms,
)  # fmt: skip
from ..ir import Callable as CallableAnnotation
from ..ir import Shape
from ..symbolic import Expr, Var, as_expr, prove_equal, prove_less_equal, variables
from ..target import Target
from ..tir import Binary, Program, Unary, children, scalar_variables
from ..tir.patterns import Kind, classify
from ..tir.scalar import Scalar

ANCHORS = (Kind.REDUCTION, Kind.OUTPUT_FUSIBLE)
POINTWISE = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)
EXPENSIVE = ("exp", "log", "sqrt", "rsqrt", "tanh", "pow")


def fuse_ops(module: Module, target: Target) -> Module:
    """Moves each group of calls into a function of its own, marked `fused`, which `fuse_tir` makes one program.

    A producer joins the group that holds all its uses, so a group has one result and no value leaves it twice. Injective and
    cheap elementwise producers go into a consumer's loads; elementwise consumers go onto a reduction's or a matmul's result; a
    group has one reduction. Nothing moves over an in-place write of what it reads, and a group binds no more buffers than a
    kernel may.
    """
    kinds = {name: classify(program) for name, program in module.programs.items()}
    groups = _Groups(dict(module.functions), module, kinds, target)
    functions = {name: groups.fuse(f) for name, f in module.functions.items()}
    return module.with_functions({**functions, **groups.created})


@dataclass
class _Groups:
    taken: dict[str, Function]
    module: Module
    kinds: dict[str, Kind]
    target: Target

    def __post_init__(self) -> None:
        self.created: dict[str, Function] = {}
        self._known: dict[Function, str] = {}

    def fuse(self, function: Function) -> Function:
        if function.fused:
            return function
        bindings = function.body.bindings
        group_of = _Grouping(self.module, self.kinds, self.target, function.body).run()
        members: dict[int, list[int]] = {}
        for at, group in group_of.items():
            members.setdefault(group, []).append(at)
        inner = {at for root, all_of in members.items() if len(all_of) > 1 for at in all_of if at != root}
        result = []
        for at, binding in enumerate(bindings):
            if at in inner:
                continue
            if len(members.get(at, ())) > 1:
                parts = [bindings[m] for m in sorted(members[at])]
                binding = replace(binding, value=self.outline(parts))
            result.append(binding)
        return replace(function, body=Block(tuple(result), function.body.result))

    def outline(self, parts: Sequence[Binding]) -> CallFunction:
        """A call of a fused function that holds the given bindings; equal groups share it."""
        own = {b.name.name for b in parts}
        outside: dict[Atom, Name] = {}
        builder = BlockBuilder()
        renamed: dict[str, Name] = {}

        def inside(atom: Atom) -> Atom:
            if isinstance(atom, Name) and atom.name in own:
                return renamed[atom.name]
            if atom not in outside:
                outside[atom] = Name(builder.fresh(f"p{len(outside)}"), atom.annotation)
            return outside[atom]

        consumed = []
        for binding in parts:
            value = map_atoms(binding.value, inside)
            assert isinstance(value, CallTIR)
            program = self.module.programs[value.program]
            for at, (_, source) in enumerate(program.in_place):
                atom = value.args[[b.name for b in program.inputs].index(source)]
                consumed.append(([p.name for p in outside.values()].index(str(atom)), at))
            renamed[binding.name.name] = builder.emit(value, _base(value.program))
        params = list(outside.values())
        args = list(outside)
        missing = _unbound(parts, params)
        if missing:
            # Relax, fig. 8: what the parameters do not carry becomes an extra shape parameter.
            params.append(Name(builder.fresh("symbols"), Shape(missing)))
            args.append(ShapeValue(missing))
        result = renamed[parts[-1].name.name]
        body = builder.block(result)
        function = Function("", tuple(params), body, result.annotation, tuple(consumed), fused=True)
        name = self._name(function, parts)
        signature = CallableAnnotation(tuple(p.annotation for p in params), function.result)
        return CallFunction(FunctionRef(name, signature), tuple(args))

    def _name(self, function: Function, parts: Sequence[Binding]) -> str:
        if function not in self._known:
            words = [_base(b.value.program) for b in parts if isinstance(b.value, CallTIR)]
            base = name = "fused_" + "_".join(words)
            number = 0
            while name in self.taken:
                number += 1
                name = f"{base}_{number}"
            self._known[function] = name
            self.taken[name] = self.created[name] = replace(function, name=name)
        return self._known[function]


def _base(name: str) -> str:
    """A program's name without the number that tells it from others."""
    return re.sub(r"_\d+$", "", name)


def _unbound(parts: Sequence[Binding], params: Sequence[Name]) -> tuple[Expr, ...]:
    used: set[Var] = set()
    for binding in parts:
        used |= annotation_variables(binding.name.annotation)
        assert isinstance(binding.value, CallTIR)
        used.update(v for e in binding.value.sym_args for v in variables(e))
    for param in params:
        used |= annotation_variables(param.annotation)
    bound = {
        d for p in params if isinstance(p.annotation, Tensor) for d in p.annotation.shape or () if isinstance(d, Var)
    }
    return tuple(sorted(used - bound, key=lambda v: v.name))


class _Grouping:
    """Assigns the calls of one block to groups, each named by the index of its last member."""

    def __init__(self, module: Module, kinds: dict[str, Kind], target: Target, block: Block) -> None:
        self.module, self.kinds, self.target, self.block = module, kinds, target, block
        self.index = {b.name.name: at for at, b in enumerate(block.bindings)}
        self.users: dict[int, set[int]] = {at: set() for at in range(len(block.bindings))}
        self.consumers: dict[str, int] = {}
        self.group: dict[int, int] = {}
        for at, binding in enumerate(block.bindings):
            for atom in _deep_atoms(binding):
                if isinstance(atom, Name) and atom.name in self.index:
                    self.users[self.index[atom.name]].add(at)
            if isinstance(binding.value, CallTIR):
                self.group[at] = at
                program = self.program(at)
                for _, source in program.in_place:
                    self.consumers[str(binding.value.args[[b.name for b in program.inputs].index(source)])] = at
        if isinstance(block.result, Name) and block.result.name in self.index:
            self.users[self.index[block.result.name]].add(len(block.bindings))

    def call(self, at: int) -> CallTIR:
        value = self.block.bindings[at].value
        assert isinstance(value, CallTIR)
        return value

    def program(self, at: int) -> Program:
        return self.module.programs[self.call(at).program]

    def kind(self, at: int) -> Kind:
        return self.kinds[self.call(at).program]

    def members(self, group: int) -> list[int]:
        return [at for at, g in self.group.items() if g == group]

    def run(self) -> dict[int, int]:
        for at in sorted(self.group, reverse=True):
            users = self.users[at]
            if not users or any(u not in self.group for u in users):
                continue
            targets = {self.group[u] for u in users}
            if len(targets) == 1 and self.may_join(at, *targets):
                self.group[at] = targets.pop()
        return self.group

    def may_join(self, at: int, group: int) -> bool:
        members = self.members(group)
        if (
            len(self.program(at).outputs) != 1
            or self._crosses_write(at, group)
            or self._buffers([at, *members]) > self.target.storage_buffers
        ):
            return False
        if self.kind(at) in POINTWISE:
            return all(self._may_inline(at, user) for user in self.users[at])
        if self.kind(at) in ANCHORS:
            return not any(self.kind(m) in ANCHORS for m in members) and self._is_epilogue(at, members)
        return False

    def _may_inline(self, at: int, user: int) -> bool:
        """Whether the value may be computed where it is read: once an element, or again where that is cheap."""
        reads = self._reads(at, user)
        if any(r is None for r in reads):
            return False
        if len(reads) == 1 and reads[0] is False:
            return True
        producers = [self.index[a.name] for a in self.call(at).args if isinstance(a, Name) and a.name in self.index]
        onto_anchor = self.kind(at) != Kind.INJECTIVE and any(
            p in self.group and self.kind(p) in ANCHORS and self.users[p] == {at} for p in producers
        )
        return not onto_anchor and self._is_cheap_again(self.program(at))

    def _is_cheap_again(self, program: Program) -> bool:
        """Whether computing elements again costs no more than reading them back: simple arithmetic on no more bytes."""
        read = sum((b.size for b in program.inputs), as_expr(0))
        simple = all(_is_cheap(v) for stage in program.stages for v in stage.values)
        return simple and prove_less_equal(read, program.outputs[0].size)

    def _reads(self, at: int, user: int) -> list[bool | None]:
        """For each read of the value by the user: whether its elements are read repeatedly; None if as an index."""
        call, program = self.call(user), self.program(user)
        name = self.block.bindings[at].name.name
        buffers = {
            b.name for b, a in zip(program.inputs, call.args, strict=True) if isinstance(a, Name) and a.name == name
        }
        result: list[bool | None] = []
        for stage in program.stages:
            direct = [load for value in stage.values for load in _direct_loads(value)]
            total = [load for load in stage.loads() if load.buffer in buffers]
            mine = [load for load in direct if load.buffer in buffers]
            result += [None] * (len(total) - len(mine))
            for load in mine:
                used = {v for i in load.indices for v in variables(i)}
                result.append(any(a.var not in used for a in (*stage.spatial, *stage.reduce)))
        return result

    def _is_epilogue(self, at: int, members: Sequence[int]) -> bool:
        """Whether the members compute, elementwise, from exactly the element that the anchor just produced."""
        dependent = {at}
        shape = self.program(at).outputs[0].shape
        for member in sorted(members):
            call, program = self.call(member), self.program(member)
            names = {self.block.bindings[d].name.name for d in dependent}
            buffers = {
                b.name
                for b, a in zip(program.inputs, call.args, strict=True)
                if isinstance(a, Name) and a.name in names
            }
            if not buffers:
                continue
            if self.kind(member) not in (Kind.ELEMENTWISE, Kind.BROADCAST) or len(program.stages) != 1:
                return False
            (stage,) = program.stages
            spatial = tuple(a.var for a in stage.spatial)
            if any(load.buffer in buffers and load.indices != spatial for load in stage.loads()):
                return False
            out = program.outputs[0].shape
            if len(out) != len(shape) or not all(prove_equal(a, b) for a, b in zip(out, shape, strict=True)):
                return False
            dependent.add(member)
        return True

    def _buffers(self, members: Sequence[int]) -> int:
        own = {self.block.bindings[m].name.name for m in members}
        outer = {str(a) for m in members for a in self.call(m).args if not (isinstance(a, Name) and a.name in own)}
        writes_in_place = any(self.program(m).in_place for m in members)
        return len(outer) + (0 if writes_in_place else 1)

    def _crosses_write(self, at: int, group: int) -> bool:
        """Whether something that the call reads is overwritten before the group runs, the group's own writes included."""
        read = [str(a) for a in self.call(at).args]
        return any(name in self.consumers and at < self.consumers[name] <= group for name in read)


def _deep_atoms(binding: Binding) -> list[Atom]:
    from ..ir import If, use_counts

    found = list(atoms(binding.value))
    if isinstance(binding.value, If):
        for arm in (binding.value.then, binding.value.orelse):
            found += [Name(n, binding.name.annotation) for n in use_counts(arm)]
    return found


def _direct_loads(node: Scalar) -> list[Scalar]:
    from ..tir import Load

    own: list[Scalar] = [node] if isinstance(node, Load) else []
    return own + [load for child in children(node) for load in _direct_loads(child)]


def _is_cheap(node: Scalar) -> bool:
    """No transcendental function and no division."""
    costly = (isinstance(node, Unary) and node.op in EXPENSIVE) or (
        isinstance(node, Binary) and (node.op in EXPENSIVE or (node.op == "div" and node.dtype == "f32"))
    )
    return not costly and all(map(_is_cheap, children(node)))


__all__ = ["fuse_ops", "scalar_variables"]
