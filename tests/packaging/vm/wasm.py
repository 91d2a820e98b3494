"""vm.wasm under wasmtime, with the results and errors of the reference VM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wasmtime

from webrelax.compiler.vm import Step, Suspended, VMError, VMFormatError, commands_of
from webrelax.compiler.vm.isa import FAULTS, Status

_FAULT = {fault.code: fault for fault in FAULTS}


class WasmVM:
    """One instance of vm.wasm; `load` a module, then `call` as Machine.call."""

    def __init__(self, path: Path) -> None:
        engine = wasmtime.Engine()
        self.module = wasmtime.Module.from_file(engine, str(path))
        self.store = wasmtime.Store(engine)
        self.exports = wasmtime.Instance(self.store, self.module, []).exports(self.store)
        memory = self.exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self.memory = memory

    def invoke(self, name: str, *arguments: int) -> Any:
        function = self.exports[name]
        assert isinstance(function, wasmtime.Func)
        return function(self.store, *arguments)

    def load(self, data: bytes) -> None:
        pointer = self.invoke("vm_allocate", len(data))
        assert pointer
        self.memory.write(self.store, data, pointer)
        code = self.invoke("vm_load", pointer, len(data))
        if code:
            raise VMFormatError(_FAULT[code].name, **self._values())

    def find(self, name: str) -> int:
        pointer = self.invoke("vm_arguments")
        self.memory.write(self.store, name.encode(), pointer)
        index: int = self.invoke("vm_find", pointer, len(name.encode()))
        return index

    def call(self, function: int, arguments: Sequence[int], first_row: int = 0, rows: int = 1) -> Step | Suspended:
        data = b"".join(value.to_bytes(4, "little", signed=True) for value in arguments)
        self.memory.write(self.store, data, self.invoke("vm_arguments"))
        return self._result(self.invoke("vm_call", function, len(arguments), first_row, rows))

    def resume(self, value: int) -> Step | Suspended:
        return self._result(self.invoke("vm_resume", value))

    def _result(self, code: int) -> Step | Suspended:
        if code not in (Status.DONE, Status.SUSPENDED):
            text = self.invoke("vm_error_text")
            function = self.invoke("vm_error_function")
            values = self._values() | {"function": self._text(function)}
            raise VMError(_FAULT[code].name, message=self._text(text), **values)
        stream = self._words("vm_stream")
        commands = tuple(commands_of(stream))
        table = [word - (1 << 32) if word >> 31 else word for word in self._words("vm_table")]
        if code == Status.DONE:
            return Step(commands, table)
        return Suspended(commands, table, stream[-2], stream[-1], self.resume)

    def _values(self) -> dict[str, Any]:
        return {
            "expected": int(self.invoke("vm_error_expected")),
            "actual": int(self.invoke("vm_error_actual")),
            "function": self.invoke("vm_error_function"),
            "instruction": self.invoke("vm_error_instruction"),
        }

    def _words(self, name: str) -> list[int]:
        start = self.invoke(name)
        data = self.memory.read(self.store, start, start + 4 * self.invoke(f"{name}_words"))
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    def _text(self, index: int) -> str:
        start = self.invoke("vm_text", index)
        return bytes(self.memory.read(self.store, start, start + self.invoke("vm_text_bytes", index))).decode("ascii")
