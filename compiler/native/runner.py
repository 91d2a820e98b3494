"""Runs an executable's functions on a wgpu device, as the page does: one VM call a step, its commands to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import WebrelaxError
from ..executable import BindingSet, DeviceBuffer, EntryPoint, Executable
from ..vm import Command, Machine, Suspended, VMModule
from ..wgsl import KernelSource
from .device import Device, default_device

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ROW_ALIGNMENT = 256


class Runner:
    """Holds the device's buffers of a model: weights are uploaded once, state lives until `reset`."""

    def __init__(
        self,
        kernels: Sequence[KernelSource],
        binding_sets: Sequence[BindingSet],
        buffers: Sequence[DeviceBuffer],
        functions: Mapping[str, EntryPoint],
        bytecode: VMModule,
        weights: Mapping[str, Array],
        device: Device | None = None,
    ) -> None:
        self.device = device or default_device()
        self.functions, self.sets, self.specs = functions, binding_sets, buffers
        self.machine = Machine(bytecode)
        self.row_bytes = -(-bytecode.row_slots * 4 // ROW_ALIGNMENT) * ROW_ALIGNMENT
        self.used_bytes = bytecode.row_slots * 4
        self.table = self.device.table(self.row_bytes)
        self.buffers = [self.device.buffer(spec.size) for spec in buffers]
        self.kernels = list(kernels)
        self.description = self.device.description
        self.groups: dict[tuple[int, int], Any] = {}
        for spec, buffer in zip(buffers, self.buffers, strict=True):
            if spec.kind == "weight":
                self.device.write(buffer, weights[spec.name])
        self.dispatches = 0

    @classmethod
    def of(cls, executable: Executable, weights: Mapping[str, Array] | None = None) -> Runner:
        """A runner of what `compile` gave, on the default device. `weights` are by name, as the module has them."""
        kernels = [kernel.source for kernel in executable.kernels]
        parts = (executable.binding_sets, executable.buffers, executable.functions, executable.bytecode)
        return cls(kernels, *parts, weights or {})

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
        if isinstance(step, Suspended):
            raise WebrelaxError(f"{name} reads values back from the device, which this runner does not do")
        for argument in entry.arguments:
            if argument.dtype is not None:
                data = np.ascontiguousarray(inputs[argument.name], dtype=np.int32 if argument.dtype == "i32" else None)
                self.device.write(self.buffers[argument.buffer], data, argument.offset)
        row = np.zeros(self.row_bytes // 4, np.int32)
        row[: len(step.table)] = step.table
        self.device.write(self.table, row)
        self._submit(step.commands)
        sizes = self._variables(entry, dims)
        results = {}
        for result in entry.results:
            shape = tuple(d if isinstance(d, int) else sizes[d] for d in result.shape)
            raw = self.device.read(self.buffers[result.buffer], int(np.prod(shape)) * 4, result.offset)
            results[result.name] = np.frombuffer(raw, {"f32": np.float32, "i32": np.int32}[str(result.dtype)]).reshape(
                shape
            )
        return results

    def _variables(self, entry: EntryPoint, dims: Sequence[int]) -> dict[str, int]:
        names = [d for argument in entry.arguments for d in argument.shape]
        return {n: d for n, d in zip(names, dims, strict=True) if isinstance(n, str)}

    def _submit(self, commands: Sequence[tuple[int, ...]]) -> None:
        batch = []
        self.dispatches = 0
        for command in commands:
            if command[0] != Command.DISPATCH:
                continue
            _, kernel, binding_set, x, y, z, row = command
            pipeline = self.device.pipeline(self.kernels[kernel])
            key = (kernel, binding_set)
            if key not in self.groups:
                bindings = [(self.buffers[b], offset, size) for b, offset, size in self.sets[binding_set]]
                self.groups[key] = self.device.bind(pipeline, self.table, self.used_bytes, bindings)
            batch.append((pipeline, self.groups[key], (x, y, z), row * self.row_bytes))
        self.dispatches = len(batch)
        self.device.submit(batch)
