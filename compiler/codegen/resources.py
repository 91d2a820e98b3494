"""What the functions of a module share on the device: buffers, kernels and binding sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import WebrelaxError
from ..executable import BindingSet, CompiledKernel, DeviceBuffer
from ..ir import CallLibrary, Module
from ..passes.dispatch_library import Routine
from ..schedule import Kernel, check_bindings, merge_bindings, schedule
from ..target import Target
from ..tir import Program
from .languages import LANGUAGES

INPUTS = "inputs"
Region: TypeAlias = tuple[int, int, int]
"""(buffer, offset, size)"""


@dataclass
class Resources:
    """Buffers, kernels, binding sets and texts, each found again by its content."""

    module: Module
    target: Target
    routines: Mapping[str, Routine]
    buffers: dict[str, DeviceBuffer] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    kernels: list[CompiledKernel] = field(default_factory=list)
    sets: dict[BindingSet, int] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.language = LANGUAGES[self.target.language]
        most = max((len(f.slots) for f in self.module.functions.values()), default=0)
        self.table_vec4s = max(1, -(-most // 4))
        self._scheduled: dict[str, Kernel] = {}
        self._emitted: dict[tuple[object, ...], int] = {}
        self._numbers_of_kernels: dict[tuple[object, ...], int] = {}
        self._inputs: dict[str, tuple[int, int]] = {}
        self._input_end = 0
        self.buffer(INPUTS, "input", 4)

    def buffer(self, name: str, kind: str, size: int) -> int:
        """The number of the buffer of this name, which is at least `size` bytes large."""
        if size > self.target.buffer_size:
            raise WebrelaxError(f"buffer {name} takes {size} bytes, a buffer has at most {self.target.buffer_size}")
        known = self.buffers.get(name)
        if known is None:
            self.numbers[name] = len(self.numbers)
        elif known.kind != kind:
            raise WebrelaxError(f"the name {name} stands for a {known.kind} and for a {kind}: rename one")
        self.buffers[name] = DeviceBuffer(name, kind, max(size, known.size if known else 4))
        return self.numbers[name]

    def kind_of(self, region: Region) -> str:
        """The kind of the buffer that a region lies in."""
        return list(self.buffers.values())[region[0]].kind

    def input(self, name: str, size: int) -> Region:
        """The section of the input buffer for a host-written tensor; functions share it by name."""
        align = self.target.offset_alignment
        if name not in self._inputs or self._inputs[name][1] < size:
            self._inputs[name] = (self._input_end, size)
            self._input_end = -(-(self._input_end + size) // align) * align
        offset, _ = self._inputs[name]
        return self.numbers[INPUTS], offset, size

    def finish_inputs(self) -> None:
        """Gives the input buffer its size."""
        self.buffer(INPUTS, "input", max(4, self._input_end))

    def string(self, text: str) -> int:
        """The number of a text."""
        return self.strings.setdefault(text, len(self.strings))

    def binding_set(self, bindings: BindingSet) -> int:
        """The number of a binding set."""
        return self.sets.setdefault(bindings, len(self.sets))

    def library_kernel(self, call: CallLibrary, slots: tuple[int, ...]) -> tuple[int, CompiledKernel]:
        """The kernel of a routine, linked by its name. Raises WebrelaxError if there is none."""
        key = (call.routine, call.program, call.attributes, slots)
        if key not in self._emitted:
            routine, program = self.routines.get(call.routine), self.module.programs[call.program]
            if not isinstance(routine, self.language.routine):
                language = self.target.language.upper()
                raise WebrelaxError(f"the library has no {language} routine {call.routine!r}: compile with its table")
            symbols = dict(zip(program.symbols, slots, strict=True))
            source, grid = self.language.render(
                routine, program, dict(call.attributes), symbols, self.table_vec4s, self.target
            )
            self._emitted[key] = self._add(CompiledKernel(source, call.program, slots, grid, ()))
        return self._emitted[key], self.kernels[self._emitted[key]]

    def kernel(
        self, program: Program, slots: tuple[int, ...], merged: tuple[tuple[int, ...], ...]
    ) -> tuple[int, CompiledKernel]:
        """The kernel for a program whose symbols stand in these slots of the table."""
        key = (program.name, slots, merged)
        if key not in self._emitted:
            if program.name not in self._scheduled:
                self._scheduled[program.name] = schedule(program, self.target)
            scheduled = self._scheduled[program.name]
            kernel = merge_bindings(scheduled, merged) if merged else scheduled
            check_bindings(kernel, self.target)
            source = self.language.emit(kernel, dict(zip(program.symbols, slots, strict=True)), self.table_vec4s)
            self._emitted[key] = self._add(CompiledKernel(source, program.name, slots, kernel.grid, merged))
        return self._emitted[key], self.kernels[self._emitted[key]]

    def _add(self, kernel: CompiledKernel) -> int:
        # The text alone does not say it: a kernel for one row and one for n rows may differ in their grids only.
        same = (kernel.source.name, kernel.source.text, kernel.grid)
        if same not in self._numbers_of_kernels:
            self._numbers_of_kernels[same] = len(self.kernels)
            self.kernels.append(kernel)
        return self._numbers_of_kernels[same]
