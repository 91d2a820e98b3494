"""Which calls of a block one kernel can do together (Relax, algorithm 2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from ..ir import Annotation, Block, CallTIR, Module, Name, Ownership, Tensor, Tuple, origins
from ..ir.liveness import allocated_outputs, deep_atoms
from ..symbolic import Expr, Var, as_expr, as_int, divide_exact, prove_equal, prove_less_equal, substitute
from ..target import Target
from ..tir import Binary, Kind, Load, Program, Scalar, Stage, Unary, direct_loads, nodes
from .merge import rename_scalar

ANCHORS = (Kind.REDUCTION, Kind.OUTPUT_FUSIBLE)
POINTWISE = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)
EXPENSIVE = ("exp", "log", "sqrt", "rsqrt", "tanh", "pow")
# Expressions are trees: a value that is read twice doubles what it is made of, in each step of a chain.
MOST_COPIES = 32
# They nest as deep as their group is long, and what works on them recurses.
MOST_MEMBERS = 32


class Grouping:
    """Assigns the calls of one block to groups, each named by the index of its last member.

    A producer joins the group that holds all its uses, so a group has one result and no value leaves it twice. Calls
    whose shapes are not known stay alone. `refusals` says of a call why it did not join.
    """

    def __init__(
        self, module: Module, kinds: Mapping[str, Kind], target: Target, block: Block, ownership: Ownership
    ) -> None:
        self.module, self.kinds, self.target, self.block, self.ownership = module, kinds, target, block, ownership
        self.index = {b.name.name: at for at, b in enumerate(block.bindings)}
        self.users: dict[int, set[int]] = {at: set() for at in range(len(block.bindings))}
        self.writes = [at for at, b in enumerate(block.bindings) if ownership.writes[b.name.name]]
        self.group: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}  # of each group, last to first
        self.copies: dict[int, int] = {}
        self.refusals: dict[int, str] = {}
        for at, binding in enumerate(block.bindings):
            for atom in deep_atoms(binding):
                if isinstance(atom, Name) and atom.name in self.index:
                    self.users[self.index[atom.name]].add(at)
            if isinstance(binding.value, CallTIR) and self._is_shaped(at):
                self.group[at], self.members[at], self.copies[at] = at, [at], 1
        if isinstance(block.result, Name) and block.result.name in self.index:
            self.users[self.index[block.result.name]].add(len(block.bindings))

    def run(self) -> dict[int, list[int]]:
        """The members of each group that has several, in program order."""
        for at in sorted(self.group, reverse=True):
            targets = {self.group.get(user) for user in self.users[at]}
            group = targets.pop() if len(targets) == 1 else None
            if group is None:
                continue
            refusal = self._refusal(at, group)
            if refusal is None:
                self.group[at], self.copies[at] = group, self._copies(at)
                self.members[group] += self.members.pop(at)
            else:
                self.refusals[at] = refusal
        return {group: members[::-1] for group, members in self.members.items() if len(members) > 1}

    def _name(self, at: int) -> str:
        return self.block.bindings[at].name.name

    def _call(self, at: int) -> CallTIR:
        value = self.block.bindings[at].value
        assert isinstance(value, CallTIR)
        return value

    def _program(self, at: int) -> Program:
        return self.module.programs[self._call(at).program]

    def _kind(self, at: int) -> Kind:
        return self.kinds[self._call(at).program]

    def _is_shaped(self, at: int) -> bool:
        call = self._call(at)
        return all(map(_is_known, (*(a.annotation for a in call.args), self.block.bindings[at].name.annotation)))

    def _refusal(self, at: int, group: int) -> str | None:
        """Why the call may not join the group that holds all its uses; None where it may."""
        members = self.members[group][::-1]
        if crossed := self._crossed_write(at, group):
            return f"crosses an in-place write: {crossed} overwrites what it reads"
        if (buffers := self._buffers([at, *members])) > self.target.storage_buffers:
            return f"the kernel would bind {buffers} buffers, {self.target.storage_buffers} are allowed"
        if len(members) == MOST_MEMBERS:
            return f"the kernel does {MOST_MEMBERS} operators already, which are as many as are allowed"
        if (copies := self._copies(at)) > MOST_COPIES:
            return f"its expression would be repeated {copies} times"
        if self._kind(at) in POINTWISE:
            refusals = (self._inline_refusal(at, user) for user in sorted(self.users[at]))
            return next((refusal for refusal in refusals if refusal), None)
        if self._kind(at) in ANCHORS:
            anchors = [member for member in members if self._kind(member) in ANCHORS]
            # Matmuls of one operand over the same loops keep their sums side by side: gate and up.
            if anchors and not self._operands(at).intersection(*map(self._operands, anchors)):
                return f"both are reductions: a kernel does one, and {self._name(anchors[0])} is another"
            return self._epilogue_refusal(at, members)
        return "it is opaque: it writes in place, scatters, or has several results"

    def _inline_refusal(self, at: int, user: int) -> str | None:
        """None where the value may be computed where it is read: once an element, or again where that is cheap."""
        program, buffers = self._program(user), self._buffers_of(user, {at})
        if buffers & {source for _, source in program.in_place}:
            return f"{self._name(user)} overwrites its memory"
        reads = as_expr(0)
        for stage in program.stages:
            # An index of the store map is no value either.
            direct = [load for load in _direct(stage) if load.buffer in buffers]
            if len(direct) != sum(load.buffer in buffers for load in stage.loads()):
                return f"{self._name(user)} uses it as an index"
            # A kernel computes equal expressions once.
            reads += len({load.indices for load in direct}) * _product(
                [axis.extent for axis in (*stage.spatial, *stage.reduce)]
            )
        if all(prove_less_equal(reads, _product(program.buffer(b).shape)) for b in buffers):
            return None
        if not self._is_onto_anchor(at) and _is_cheap_again(self._program(at)):
            return None
        times = [divide_exact(reads, size) for b in buffers if as_int(size := _product(program.buffer(b).shape)) != 0]
        often = f"{times[0]} times" if len(times) == 1 and times[0] is not None else "more than once"
        return f"would be evaluated again: {self._name(user)} reads each element {often}, and it is not cheap"

    def _copies(self, at: int) -> int:
        """How often the group's expressions would repeat the call's, were it inlined wherever it is read."""
        return sum(
            self.copies[user]
            * sum(load.buffer in buffers for stage in self._program(user).stages for load in _direct(stage))
            for user in self.users[at]
            for buffers in (self._buffers_of(user, {at}),)
        )

    def _is_onto_anchor(self, at: int) -> bool:
        """Whether the call could go onto the result of a reduction, which computes each element once."""
        producers = [self.index[a.name] for a in self._call(at).args if isinstance(a, Name) and a.name in self.index]
        return self._kind(at) != Kind.INJECTIVE and any(
            p in self.group and self._kind(p) in ANCHORS and self.users[p] == {at} for p in producers
        )

    def _epilogue_refusal(self, at: int, members: Sequence[int]) -> str | None:
        """None where the members compute, elementwise, from exactly the element that the anchor just produced."""
        dependent = {at}
        for member in members:
            program, buffers = self._program(member), self._buffers_of(member, dependent)
            if not buffers:
                continue
            kind = self._kind(member)
            if kind not in (Kind.ELEMENTWISE, Kind.BROADCAST) or len(program.stages) != 1:
                return f"{self._name(member)} is {kind}: only what reads the result at its own indices goes onto it"
            (stage,) = program.stages
            spatial = tuple(axis.var for axis in stage.spatial)
            if any(load.buffer in buffers and load.indices != spatial for load in stage.loads()):
                return f"{self._name(member)} reads the result at other indices"
            if not self._same_shape(at, member):
                return f"{self._name(member)} has another shape"
            dependent.add(member)
        return None

    def _operands(self, at: int) -> frozenset[tuple[Scalar, tuple[Expr, ...]]]:
        """What a matmul multiplies: each factor, over the block's values and numbered loops, with the loops' extents.

        Equal ones are the same elements of the same tensors at the same points. No other call has any.
        """
        if self._kind(at) != Kind.OUTPUT_FUSIBLE:
            return frozenset()
        call, program = self._call(at), self._program(at)
        product = program.stages[0]
        names = {buffer.name: str(atom) for buffer, atom in zip(program.inputs, call.args, strict=True)}
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
        axes = (*product.spatial, *product.reduce)
        extents = tuple(substitute(axis.extent, symbols) for axis in axes)
        symbols |= {axis.var: Var(f"loop {number}") for number, axis in enumerate(axes)}
        (value,) = product.values
        assert isinstance(value, Binary)
        return frozenset((rename_scalar(factor, names, symbols), extents) for factor in (value.left, value.right))

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

    def _crossed_write(self, at: int, group: int) -> str | None:
        """What overwrites something that the call reads, before the group runs or in it."""
        read = frozenset[str]().union(*(origins(self.ownership.memory(a)) for a in self._call(at).args))
        between = self.writes[bisect_right(self.writes, at) : bisect_right(self.writes, group)]
        crossed = (write for write in between if self.ownership.writes[self._name(write)] & read)
        return next(map(self._name, crossed), None)


def _direct(stage: Stage) -> list[Load]:
    return [load for value in stage.values for load in direct_loads(value)]


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
