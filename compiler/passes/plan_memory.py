"""plan_memory: gives every tensor a fixed place in a few storages, for all values of the shape variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import WebrelaxError
from ..ir import Block, CallFunction, CallTIR, Function, FunctionRef, If, Module, Place, Tensor, all_bindings
from ..ir.liveness import Tensors, allocated_outputs, tensor_lives
from ..symbolic import upper_bound
from ..target import Target
from ..tir import Buffer

Key = tuple[str, int]


def plan_memory(module: Module, target: Target) -> Module:
    """Places the outputs of all calls by liveness, under the upper bounds of the shape variables.

    After it no two live tensors overlap, and no dispatch finds an input and an output in the same storage: WebGPU
    tracks the use of a buffer as a whole. Offsets are multiples of the target's alignment. Functions that are not
    called by others never run at the same time and share the storages; a called function has its own. Results of the
    former have storages of their own, named `result0`, `result1`, ...: the host reads them after the call.
    """
    called = {
        atom.name
        for function in module.functions.values()
        for binding in all_bindings(function.body)
        if isinstance(binding.value, CallFunction) and isinstance(atom := binding.value.callee, FunctionRef)
    }
    pools: dict[str, _Pool] = {"": _Pool("s", target)}
    functions = {}
    for name, function in module.functions.items():
        group = name if name in called else ""
        pool = pools.setdefault(group, _Pool(f"{name}.s", target))
        functions[name] = _plan(module, function, pool, name not in called)
    storages = {s.name: s.size for pool in pools.values() for s in pool.storages}
    return replace(module, functions=functions, storages=storages)


def tensor_bytes(module: Module, function: Function) -> dict[Key, int]:
    """Bytes that each allocated tensor of a function takes at the bounds. Raises WebrelaxError for an unbounded one."""
    sizes = {}
    for binding in all_bindings(function.body):
        if isinstance(binding.value, CallTIR):
            call = binding.value
            for out in allocated_outputs(call, module.programs[call.program]):
                sizes[(binding.name.name, out)] = _bytes(function, binding.name.name, call.outputs[out])
    return sizes


def unplanned_bytes(module: Module) -> dict[str, int]:
    """For each function the bytes of its tensors if nothing were reused."""
    return {name: sum(tensor_bytes(module, f).values()) for name, f in module.functions.items()}


def peak_bytes(module: Module, function: Function) -> int:
    """The most bytes that are live at once: no plan can use less."""
    lives, sizes = tensor_lives(function.body, module.programs), tensor_bytes(module, function)
    return max(
        (sum(sizes[t] for t in sizes if lives.born[t] <= at <= lives.dies[t]) for at in range(lives.end)), default=0
    )


def _bytes(function: Function, name: str, annotation: Tensor) -> int:
    assert annotation.shape is not None
    assert annotation.dtype is not None
    size = upper_bound(Buffer(name, annotation.shape, annotation.dtype).size)
    if size is None:
        raise WebrelaxError(
            f"{function.name}: the size of {name}, {annotation}, has no upper bound: declare one for its variables"
        )
    return max(16, -(-size // 16) * 16)


@dataclass
class _Storage:
    name: str
    size: int
    placed: list[tuple[Key, int, int]] = field(default_factory=list)


@dataclass
class _Pool:
    """Storages that functions which never run together share."""

    prefix: str
    target: Target
    storages: list[_Storage] = field(default_factory=list)

    def begin(self) -> None:
        for storage in self.storages:
            storage.placed = []

    def place(self, key: Key, size: int, lives: Tensors, conflicts: set[Key]) -> Place:
        """The place that makes the storages grow least, then the lowest one."""
        best: tuple[int, int, int] | None = None
        for number, storage in enumerate(self.storages):
            if any(other in conflicts for other, _, _ in storage.placed):
                continue
            offset = self._free_offset(storage, key, size, lives)
            growth = max(0, offset + size - storage.size)
            if offset + size <= self.target.buffer_size and (best is None or (growth, number) < best[:2]):
                best = (growth, number, offset)
        if best is None or best[0] >= size:
            self.storages.append(_Storage(f"{self.prefix}{len(self.storages)}", 0))
            best = (size, len(self.storages) - 1, 0)
        _, number, offset = best
        storage = self.storages[number]
        storage.size = max(storage.size, offset + size)
        storage.placed.append((key, offset, size))
        return Place(storage.name, offset, size)

    def _free_offset(self, storage: _Storage, key: Key, size: int, lives: Tensors) -> int:
        """The lowest offset at which the tensor overlaps nothing that lives at the same time."""
        taken = sorted(
            (offset, offset + length)
            for other, offset, length in storage.placed
            if lives.born[other] <= lives.dies[key] and lives.born[key] <= lives.dies[other]
        )
        align = self.target.offset_alignment
        at = 0
        for start, stop in taken:
            if at + size <= start:
                break
            at = max(at, -(-stop // align) * align)
        return at


def _plan(module: Module, function: Function, pool: _Pool, is_entry: bool) -> Function:
    lives, sizes = tensor_lives(function.body, module.programs), tensor_bytes(module, function)
    conflicts = _conflicts(module, lives)
    results = [t for t in sizes if lives.dies[t] == lives.end] if is_entry else []
    pool.begin()
    places = {t: Place(f"result{at}", 0, sizes[t]) for at, t in enumerate(results)}
    for tensor in sorted((t for t in sizes if t not in places), key=lambda t: (-sizes[t], lives.born[t])):
        if sizes[tensor] > pool.target.binding_size:
            raise WebrelaxError(
                f"{function.name}: {tensor[0]} takes {sizes[tensor]} bytes at the bounds, more than the"
                f" {pool.target.binding_size} of a binding: lower the context or the prefill chunk"
            )
        places[tensor] = pool.place(tensor, sizes[tensor], lives, conflicts.get(tensor, set()))
    return replace(function, body=_annotate(function.body, places))


def _conflicts(module: Module, lives: Tensors) -> Mapping[Key, set[Key]]:
    """Pairs of tensors of which one dispatch reads one and writes the other."""
    conflicts: dict[Key, set[Key]] = {}
    for binding in lives.order:
        if not isinstance(binding.value, CallTIR):
            continue
        name = binding.name.name
        written = {(name, out) for out in allocated_outputs(binding.value, module.programs[binding.value.program])}
        read: set[Key] = set()
        for atom in binding.value.args:
            read |= lives.owners.get(str(atom), frozenset())
        for w in written:
            for r in read:
                conflicts.setdefault(w, set()).add(r)
                conflicts.setdefault(r, set()).add(w)
    return conflicts


def _annotate(block: Block, places: Mapping[Key, Place]) -> Block:
    bindings = []
    for binding in block.bindings:
        value = binding.value
        if isinstance(value, If):
            value = If(value.condition, _annotate(value.then, places), _annotate(value.orelse, places))
        own: Sequence[Place] = (
            [places[k] for k in sorted(k for k in places if k[0] == binding.name.name)]
            if isinstance(value, CallTIR)
            else ()
        )
        bindings.append(replace(binding, value=value, places=tuple(own)))
    return Block(tuple(bindings), block.result)
