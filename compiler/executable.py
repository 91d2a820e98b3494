"""What compiling gives: kernels, bytecode, and the metadata that ties them together. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ir import Module
from .source import KernelSource
from .symbolic import Expr
from .vm import VMModule


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """A buffer of the device. `kind` is storage, state, input, output or weight; `size` in bytes, a multiple of 4."""

    name: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor or shape of a function's signature; dimensions are numbers or expressions, most a single variable.

    A tensor has an element type and lies at `offset` of a buffer; a shape (dtype None) has no memory (buffer -1).
    """

    name: str
    dtype: str | None
    shape: tuple[int | str, ...]
    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A function that the host calls: its place in the bytecode, its signature and the bounds of its variables.

    `slots` says what each slot of its table row holds: the dimensions of results are among them. `captured`: every
    call makes the same dispatches with the same buffers.
    """

    name: str
    index: int
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    variables: Mapping[str, tuple[int, int]]
    slots: tuple[str, ...] = ()
    captured: bool = False


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel and what it was made from: `program` of the module, with its symbols in these slots of the table.

    `grid` is in terms of the program's symbols. `merged` lists groups of the program's buffers that are one binding.
    """

    source: KernelSource
    program: str
    slots: tuple[int, ...]
    grid: tuple[Expr, Expr, Expr]
    merged: tuple[tuple[int, ...], ...]


BindingSet = tuple[tuple[int, int, int], ...]
"""(buffer, offset, size) for @binding(1), (2), ..."""


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled module. `stages` holds it as it was after each pass, `unplanned` bytes by function without reuse.

    `language` is that of the kernels: "wgsl" or "c".
    """

    module: Module
    kernels: tuple[CompiledKernel, ...]
    binding_sets: tuple[BindingSet, ...]
    buffers: tuple[DeviceBuffer, ...]
    functions: Mapping[str, EntryPoint]
    bytecode: VMModule
    stages: Mapping[str, Module]
    unplanned: Mapping[str, int]
    language: str = "wgsl"

    def bytes_of(self, kind: str) -> int:
        """The bytes of all buffers of a kind."""
        return sum(b.size for b in self.buffers if b.kind == kind)
