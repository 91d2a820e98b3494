"""The CPU's kernels outside the browser, by wasmtime, behind the interface of `Device`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..errors import WebrelaxError
from ..source import KernelSource
from ..target import WASM

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.generic]

_PAGE, _MOST_PAGES = 1 << 16, 1 << 16
_STACK = 256 << 10
_ALIGNMENT = 64


@dataclass(frozen=True)
class CpuBuffer:
    """A place in the module's memory."""

    address: int
    size: int


class CpuDevice:
    """One instance of a module of kernels, and its memory of at most 4 GiB.

    `parts` is the number of runs that each dispatch's workgroups are split into, as threads would; here one runs after
    the other. Raises WebrelaxError where the module cannot be used.
    """

    parts = 1

    def __init__(self, module: bytes, kernels: Sequence[KernelSource]) -> None:
        wasmtime = _wasmtime()
        engine = wasmtime.Engine()
        self._store = wasmtime.Store(engine)
        try:
            compiled = wasmtime.Module(engine, module)
            (memory,) = compiled.imports
            self._memory = wasmtime.Memory(self._store, memory.type)
            instance = wasmtime.Instance(self._store, compiled, [self._memory])
        except (ValueError, wasmtime.WasmtimeError) as error:
            raise WebrelaxError(f"the module of kernels cannot be used ({error}): build the site again") from error
        self._exports = instance.exports(self._store)
        self._numbers = {kernel: at for at, kernel in enumerate(kernels)}
        self._end = int(self._exports["__heap_base"].value(self._store))
        stack = self.buffer(_STACK)
        self._exports["__stack_pointer"].set_value(self._store, stack.address + _STACK)
        self.description = "CPU (wasmtime)"

    def buffer(self, size: int) -> CpuBuffer:
        """Memory of `size` bytes, zero at start. Raises WebrelaxError where the module's memory is full."""
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._end = start + max(4, size)
        missing = self._end - self._memory.data_len(self._store)
        if self._end > _PAGE * _MOST_PAGES:
            raise WebrelaxError("the model needs more than the 4 GiB that WebAssembly addresses: use a smaller one")
        if missing > 0:
            self._memory.grow(self._store, -(-missing // _PAGE))
        return CpuBuffer(start, size)

    table = buffer

    def write(self, buffer: CpuBuffer, data: Array, offset: int = 0) -> None:
        """Copies an array into a buffer."""
        import numpy as np

        data = np.ascontiguousarray(data)
        ctypes.memmove(self._base() + buffer.address + offset, data.ctypes.data, data.nbytes)

    def read(self, buffer: CpuBuffer, size: int, offset: int = 0) -> bytes:
        """Bytes of a buffer."""
        return ctypes.string_at(self._base() + buffer.address + offset, size)

    def pipeline(self, source: KernelSource) -> Any:
        """The kernel's function."""
        return self._exports[f"k{self._numbers[source]}"]

    def bind(self, pipeline: Any, table: CpuBuffer, table_bytes: int, bindings: Sequence[tuple[Any, int, int]]) -> Any:
        """(address of the bindings' addresses, address of the table)."""
        import numpy as np

        addresses = np.array([buffer.address + offset for buffer, offset, _ in bindings], np.uint32)
        place = self.buffer(addresses.nbytes)
        self.write(place, addresses)
        return place.address, table.address

    def submit(self, work: Sequence[Any]) -> None:
        """Runs dispatches and copies in order, see `Dispatch` and `Copy`."""
        for step in work:
            if len(step) == 5:
                source, start, target, to, size = step
                ctypes.memmove(self._base() + target.address + to, self._base() + source.address + start, size)
                continue
            kernel, (bindings, table), (x, y, z), row = step
            count = x * y * z
            cuts = [count * part // self.parts for part in range(self.parts + 1)]
            for first, last in pairwise(cuts):
                kernel(self._store, bindings, table + row, x, y, first, last)

    def _base(self) -> int:
        return ctypes.addressof(self._memory.data_ptr(self._store).contents)


def compiled_device(kernels: Sequence[KernelSource], relaxed: bool = False) -> CpuDevice:
    """A device for these kernels, whose module is compiled now. Raises WebrelaxError where no compiler can."""
    from ..wasm import build_module, build_relaxed_module, module_source

    module = (build_relaxed_module if relaxed else build_module)(module_source(kernels))
    if module is None:
        raise WebrelaxError("no compiler here knows relaxed SIMD: install clang and lld 18 or newer, or Emscripten")
    return CpuDevice(module, kernels)


def _wasmtime() -> Any:
    try:
        import wasmtime
    except ImportError as error:
        raise WebrelaxError(f"{WASM.name} needs wasmtime; `pip install webrelax[native]` brings it") from error
    return wasmtime
