"""Runs an executable's functions on a device, as the page does: one VM call a step, its commands to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ..executable import Argument, BindingSet, DeviceBuffer, EntryPoint, Executable
from ..source import KernelSource
from ..vm import Command, Machine, Suspended, VMModule
from .cpu import CpuDevice, compiled_device
from .device import Copy, Device, Dispatch, Pipeline, default_device

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

AnyDevice: TypeAlias = Device | CpuDevice
ROW_ALIGNMENT = 256
Commands = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Recording:
    """The dispatches of a captured function, resolved: (kernel, binding set) and pipeline and bind group of each."""

    keys: tuple[tuple[int, int], ...]
    resolved: tuple[tuple[Pipeline, Any], ...]


class Runner:
    """Holds the device's buffers of a model: weights are uploaded once, state lives as long as the runner.

    With `replay`, the dispatches of captured functions are resolved once.
    """

    def __init__(
        self,
        kernels: Sequence[KernelSource],
        binding_sets: Sequence[BindingSet],
        buffers: Sequence[DeviceBuffer],
        functions: Mapping[str, EntryPoint],
        bytecode: VMModule,
        weights: Mapping[str, Array],
        device: AnyDevice | None = None,
        replay: bool = True,
    ) -> None:
        self.device: Any = device or default_device()
        self.functions, self.sets, self.specs = functions, binding_sets, buffers
        self.machine = Machine(bytecode)
        self.row_bytes = -(-bytecode.row_slots * 4 // ROW_ALIGNMENT) * ROW_ALIGNMENT
        self.used_bytes = bytecode.row_slots * 4
        self.table = self.device.table(self.row_bytes)
        self.buffers = [self.device.buffer(spec.size) for spec in buffers]
        self.kernels = list(kernels)
        self.description = self.device.description
        self.groups: dict[tuple[int, int], Any] = {}
        self.replay = replay
        self.recordings: dict[str, Recording] = {}
        for spec, buffer in zip(buffers, self.buffers, strict=True):
            if spec.kind == "weight":
                self.device.write(buffer, weights[spec.name])
        self.dispatches = 0

    @classmethod
    def of(
        cls,
        executable: Executable,
        weights: Mapping[str, Array] | None = None,
        replay: bool = True,
        device: AnyDevice | None = None,
    ) -> Self:
        """A runner of what `compile` gave. `weights` are by name, as the module has them.

        Without a device, kernels in C are compiled for the CPU, and others are for the device that tools share.
        """
        kernels = [kernel.source for kernel in executable.kernels]
        if device is None and executable.language == "c":
            device = compiled_device(kernels)
        parts = (executable.binding_sets, executable.buffers, executable.functions, executable.bytecode)
        return cls(kernels, *parts, weights or {}, device, replay)

    def call(self, name: str, inputs: Mapping[str, Array | Sequence[int]]) -> dict[str, Array]:
        """Runs a function; `inputs` gives an array for each tensor argument and the dimensions of each shape argument.

        Returns the results by name. Raises VMError where a shape is refused.
        """
        import numpy as np

        entry = self.functions[name]
        dims: list[int] = []
        for argument in entry.arguments:
            value = inputs[argument.name]
            dims += [int(d) for d in (value if argument.dtype is None else np.shape(value))]
        step = self.machine.call(entry.index, dims)
        for argument in entry.arguments:
            if argument.dtype is not None:
                data = np.ascontiguousarray(inputs[argument.name], dtype=np.int32 if argument.dtype == "i32" else None)
                self.device.write(self.buffers[argument.buffer], data, argument.offset)
        self.dispatches = 0
        while isinstance(step, Suspended):
            self._submit(entry, step.commands[:-1], step.table)
            raw = self.device.read(self.buffers[step.buffer], 4, step.offset)
            step = step.resume(int.from_bytes(raw, "little", signed=True))
        self._submit(entry, step.commands, step.table)
        sizes = dict(zip(entry.slots, step.table, strict=False))
        return {result.name: self._read(result, sizes) for result in entry.results}

    def replace_buffer(self, number: int, buffer: Any) -> None:
        """Puts another device buffer in the place of one; what was resolved is resolved again."""
        self.buffers[number] = buffer
        self.groups.clear()
        self.recordings.clear()

    def _read(self, result: Argument, sizes: Mapping[str, int]) -> Array:
        import numpy as np

        shape = tuple(d if isinstance(d, int) else sizes[d] for d in result.shape)
        raw = self.device.read(self.buffers[result.buffer], int(np.prod(shape)) * 4, result.offset)
        return np.frombuffer(raw, {"f32": np.float32, "i32": np.int32}[str(result.dtype)]).reshape(shape)

    def _submit(self, entry: EntryPoint, commands: Commands, table: Sequence[int]) -> None:
        import numpy as np

        row = np.zeros(self.row_bytes // 4, np.int32)
        row[: len(table)] = table
        self.device.write(self.table, row)
        dispatches = [c for c in commands if c[0] == Command.DISPATCH]
        self.dispatches += len(dispatches)
        if entry.captured and self.replay:
            resolved = self._recorded(entry.name, dispatches)
        else:
            resolved = tuple(self._resolve(c[1], c[2]) for c in dispatches)
        steps = iter(resolved)
        work: list[Dispatch | Copy] = []
        for op, *words in commands:
            if op == Command.DISPATCH:
                _, _, x, y, z, at = words
                work.append((*next(steps), (x, y, z), at * self.row_bytes))
            elif op == Command.COPY:
                source, start, target, to, size = words
                work.append((self.buffers[source], start, self.buffers[target], to, size))
        self.device.submit(work)

    def _recorded(self, name: str, dispatches: Commands) -> tuple[tuple[Pipeline, Any], ...]:
        """What the dispatches resolve to, as found when the function ran before; empty grids may make it others."""
        keys = tuple((c[1], c[2]) for c in dispatches)
        known = self.recordings.get(name)
        if known is None or known.keys != keys:
            known = self.recordings[name] = Recording(keys, tuple(self._resolve(*key) for key in keys))
        return known.resolved

    def _resolve(self, kernel: int, binding_set: int) -> tuple[Pipeline, Any]:
        pipeline = self.device.pipeline(self.kernels[kernel])
        key = (kernel, binding_set)
        if key not in self.groups:
            bindings = [(self.buffers[b], offset, size) for b, offset, size in self.sets[binding_set]]
            self.groups[key] = self.device.bind(pipeline, self.table, self.used_bytes, bindings)
        return pipeline, self.groups[key]
