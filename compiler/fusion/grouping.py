"""Which calls of a block one kernel can do together (Relax, algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import Annotation, Block, CallTIR, Module, Name, Ownership, Tensor, Tuple, origins
from ..ir.liveness import allocated_outputs, deep_atoms
from ..symbolic import Expr, as_expr, prove_equal, prove_less_equal
from ..target import Target
from ..tir import Binary, Kind, Program, Scalar, Unary, direct_loads, index_loads, nodes

ANCHORS = (Kind.REDUCTION, Kind.OUTPUT_FUSIBLE)
POINTWISE = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)
EXPENSIVE = ("exp", "log", "sqrt", "rsqrt", "tanh", "pow")


class Grouping:
    """Assigns the calls of one block to groups, each named by the index of its last member.

    A producer joins the group that holds all its uses, so a group has one result and no value leaves it twice. Calls
    whose shapes are not known stay alone.
    """

    def __init__(
        self, module: Module, kinds: Mapping[str, Kind], target: Target, block: Block, ownership: Ownership
    ) -> None:
        self.module, self.kinds, self.target, self.block, self.ownership = module, kinds, target, block, ownership
        self.index = {b.name.name: at for at, b in enumerate(block.bindings)}
        self.users: dict[int, set[int]] = {at: set() for at in range(len(block.bindings))}
        self.writes = [(at, w) for at, b in enumerate(block.bindings) if (w := ownership.writes[b.name.name])]
        self.group: dict[int, int] = {}
        for at, binding in enumerate(block.bindings):
            for atom in deep_atoms(binding):
                if isinstance(atom, Name) and atom.name in self.index:
                    self.users[self.index[atom.name]].add(at)
            if isinstance(binding.value, CallTIR) and self._is_shaped(at):
                self.group[at] = at
        if isinstance(block.result, Name) and block.result.name in self.index:
            self.users[self.index[block.result.name]].add(len(block.bindings))

    def run(self) -> dict[int, list[int]]:
        """The members of each group that has several, in program order."""
        for at in sorted(self.group, reverse=True):
            targets = {self.group.get(user) for user in self.users[at]}
            group = targets.pop() if len(targets) == 1 else None
            if group is not None and self._may_join(at, group):
                self.group[at] = group
        return {group: members for group in set(self.group.values()) if len(members := self._members(group)) > 1}

    def _call(self, at: int) -> CallTIR:
        value = self.block.bindings[at].value
        assert isinstance(value, CallTIR)
        return value

    def _program(self, at: int) -> Program:
        return self.module.programs[self._call(at).program]

    def _kind(self, at: int) -> Kind:
        return self.kinds[self._call(at).program]

    def _members(self, group: int) -> list[int]:
        return sorted(at for at, g in self.group.items() if g == group)

    def _is_shaped(self, at: int) -> bool:
        call = self._call(at)
        return all(map(_is_known, (*(a.annotation for a in call.args), self.block.bindings[at].name.annotation)))

    def _may_join(self, at: int, group: int) -> bool:
        members = self._members(group)
        if len(self._program(at).outputs) != 1 or self._crosses_write(at, group):
            return False
        if self._buffers([at, *members]) > self.target.storage_buffers:
            return False
        if self._kind(at) in POINTWISE:
            return all(self._may_inline(at, user) for user in self.users[at])
        if self._kind(at) in ANCHORS:
            anchors = [m for m in members if self._kind(m) in ANCHORS]
            return not anchors and self._is_epilogue(at, members)
        return False

    def _may_inline(self, at: int, user: int) -> bool:
        """Whether the value may be computed where it is read: once an element, or again where that is cheap."""
        program, buffers = self._program(user), self._buffers_of(user, {at})
        reads = as_expr(0)
        for stage in program.stages:
            if any(load.buffer in buffers for value in stage.values for load in index_loads(value)):
                return False
            # An index of the store map is no value either.
            direct = [load for value in stage.values for load in direct_loads(value) if load.buffer in buffers]
            if len(direct) != sum(load.buffer in buffers for load in stage.loads()):
                return False
            reads += len(direct) * _product([axis.extent for axis in (*stage.spatial, *stage.reduce)])
        if all(prove_less_equal(reads, _product(program.buffer(b).shape)) for b in buffers):
            return True
        return not self._is_onto_anchor(at) and _is_cheap_again(self._program(at))

    def _is_onto_anchor(self, at: int) -> bool:
        """Whether the call could go onto the result of a reduction, which computes each element once."""
        producers = [self.index[a.name] for a in self._call(at).args if isinstance(a, Name) and a.name in self.index]
        return self._kind(at) != Kind.INJECTIVE and any(
            p in self.group and self._kind(p) in ANCHORS and self.users[p] == {at} for p in producers
        )

    def _is_epilogue(self, at: int, members: Sequence[int]) -> bool:
        """Whether the members compute, elementwise, from exactly the element that the anchor just produced."""
        dependent = {at}
        for member in members:
            program, buffers = self._program(member), self._buffers_of(member, dependent)
            if not buffers:
                continue
            if self._kind(member) not in (Kind.ELEMENTWISE, Kind.BROADCAST) or len(program.stages) != 1:
                return False
            (stage,) = program.stages
            spatial = tuple(axis.var for axis in stage.spatial)
            if any(load.buffer in buffers and load.indices != spatial for load in stage.loads()):
                return False
            if not self._same_shape(at, member):
                return False
            dependent.add(member)
        return True

    def _is_twin(self, a: int, b: int) -> bool:
        """Whether two matmuls read the same operand and run over the same domain, so that one kernel keeps both sums."""
        if not self._kind(a) == self._kind(b) == Kind.OUTPUT_FUSIBLE or not self._same_shape(a, b):
            return False
        first, second = (self._program(at).stages[0].reduce for at in (a, b))
        same = len(first) == len(second) and all(prove_equal(x.extent, y.extent) for x, y in zip(first, second, strict=True))
        return same and bool(set(self._call(a).args) & set(self._call(b).args))

    def _same_shape(self, a: int, b: int) -> bool:
        shapes = [
            name.annotation.shape
            for name in (self.block.bindings[a].name, self.block.bindings[b].name)
            if isinstance(name.annotation, Tensor) and name.annotation.shape is not None
        ]
        return len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) and all(map(prove_equal, *shapes))

    def _buffers_of(self, user: int, producers: set[int]) -> set[str]:
        """The input buffers of a call's program that hold results of the producers."""
        names = {self.block.bindings[p].name.name for p in producers}
        inputs = zip(self._program(user).inputs, self._call(user).args, strict=True)
        return {buffer.name for buffer, atom in inputs if isinstance(atom, Name) and atom.name in names}

    def _buffers(self, members: Sequence[int]) -> int:
        """How many buffers a kernel of these calls would bind."""
        own = {self.block.bindings[m].name.name for m in members}
        outer = {str(a) for m in members for a in self._call(m).args if not (isinstance(a, Name) and a.name in own)}
        root = max(members)
        return len(outer) + len(allocated_outputs(self._call(root), self._program(root)))

    def _crosses_write(self, at: int, group: int) -> bool:
        """Whether the group runs after something overwrites what the call reads, or does so itself."""
        read = frozenset[str]().union(*(origins(self.ownership.memory(a)) for a in self._call(at).args))
        return any(at < write <= group and written & read for write, written in self.writes)


def _is_known(annotation: Annotation) -> bool:
    match annotation:
        case Tensor(shape, dtype):
            return shape is not None and dtype is not None
        case Tuple(fields):
            return all(map(_is_known, fields))
    return False


def _product(extents: Sequence[Expr]) -> Expr:
    total = as_expr(1)
    for extent in extents:
        total = total * extent
    return total


def _is_cheap_again(program: Program) -> bool:
    """Whether computing elements again costs no more than reading them back: simple arithmetic on no more bytes."""
    read = sum((b.size for b in program.inputs), as_expr(0))
    simple = all(_is_cheap(node) for stage in program.stages for value in stage.values for node in nodes(value))
    return simple and prove_less_equal(read, program.outputs[0].size)


def _is_cheap(node: Scalar) -> bool:
    """No transcendental function and no division."""
    match node:
        case Unary(op, _) | Binary(op, _, _):
            return op not in EXPENSIVE and not (op == "div" and node.dtype == "f32")
    return True
