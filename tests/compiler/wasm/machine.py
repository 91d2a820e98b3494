"""Runs scheduled programs as WebAssembly, in wasmtime, and compares them with the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import wasmtime

from webrelax.compiler.schedule import schedule
from webrelax.compiler.symbolic import Var, evaluate
from webrelax.compiler.target import WASM
from webrelax.compiler.tir import Program
from webrelax.compiler.tir.interpreter import NUMPY_DTYPES, run
from webrelax.compiler.wasm import build_module, emit, module_source

from ..schedule.conftest import random_array

Array = np.ndarray[Any, Any]
PAGE = 1 << 16


class WasmModule:
    """A module of kernels in a memory of its own."""

    def __init__(self, binary: bytes, pages: int = 1024) -> None:
        self.store = wasmtime.Store()
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(pages, 1 << 15)))
        module = wasmtime.Module(self.store.engine, binary)
        self.exports = wasmtime.Instance(self.store, module, [self.memory]).exports(self.store)
        base = self.exports["__heap_base"]
        assert isinstance(base, wasmtime.Global)
        self.base: int = base.value(self.store)

    def call(self, kernel: int, arrays: Sequence[Array], table: Sequence[int], grid: Sequence[int], parts: int) -> None:
        """Runs a kernel on copies of the arrays, and reads them back. The grid is split into `parts`."""
        at, addresses = -(-self.base // 16) * 16, []
        for array in arrays:
            addresses.append(at)
            self._write(at, array.tobytes())
            at += -(-array.nbytes // 16) * 16 + 16
        where = at
        self._write(where, np.array([*addresses, *table], np.int32).tobytes())
        count = int(np.prod(grid))
        cuts = [count * part // parts for part in range(parts + 1)]
        function = self.exports[f"k{kernel}"]
        assert isinstance(function, wasmtime.Func)
        for first, last in pairwise(cuts):
            function(self.store, where, where + 4 * len(addresses), grid[0], grid[1], first, last)
        for array, address in zip(arrays, addresses, strict=True):
            raw = bytes(self.memory.read(self.store, address, address + array.nbytes))
            array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)

    def _write(self, at: int, data: bytes) -> None:
        missing = at + len(data) - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // PAGE))
        ctypes.memmove(ctypes.addressof(self.memory.data_ptr(self.store).contents) + at, data, len(data))


def check_program(
    program: Program,
    values: Sequence[Sequence[int]] = ((),),
    given: Mapping[str, Callable[[Mapping[Var, int]], Array]] | None = None,
    tolerance: float = 1e-5,
) -> str:
    """Compares at each assignment of the symbols; returns the C text. `given` makes the inputs that are not random."""
    kernel = emit(schedule(program, WASM), slots_of(program))
    module = WasmModule(build_module(module_source([kernel])))
    rng = np.random.default_rng(1)
    for assignment in values:
        symbols = dict(zip(program.symbols, assignment, strict=True))
        inputs = [
            given[b.name](symbols) if given and b.name in given else random_array(b, symbols, rng)
            for b in program.inputs
        ]
        check_call(module, 0, program, inputs, symbols, tolerance)
    return kernel.text


def slots_of(program: Program) -> dict[Var, int]:
    """Where the symbols stand in the tables of these tests."""
    return {s: 3 * at + 2 for at, s in enumerate(program.symbols)}


def check_call(
    module: WasmModule,
    number: int,
    program: Program,
    inputs: Sequence[Array],
    symbols: Mapping[Var, int],
    tolerance: float = 1e-5,
) -> list[Array]:
    """Runs a kernel of the module in one part and in three, compares with the interpreter, and gives the outputs."""
    expected = run(program, inputs, symbols)
    sources = dict(program.in_place)
    table = [0] * 32
    for symbol, slot in slots_of(program).items():
        table[slot] = symbols[symbol]
    grid = [evaluate(e, symbols) for e in schedule(program, WASM).grid]
    for parts in (1, 3):
        outputs = [b for b in program.outputs if b.name not in sources]
        fresh = [np.full([evaluate(e, symbols) for e in b.shape], 77, NUMPY_DTYPES[b.dtype]) for b in outputs]
        arrays = [a.copy() for a in (*inputs, *fresh)]
        module.call(number, arrays, table, grid, parts)
        after = {b.name: a for b, a in zip((*program.inputs, *outputs), arrays, strict=True)}
        for buffer, want in zip(program.outputs, expected, strict=True):
            got = after[sources.get(buffer.name, buffer.name)]
            scale = max(1.0, float(np.abs(want).max(initial=0))) if want.dtype.kind == "f" else 1.0
            message = f"{program.name}: {buffer.name} at {dict(symbols)}"
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=message)
    return expected
