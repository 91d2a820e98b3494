"""vm.wasm and the reference VM give the same streams, tables and errors, for sound and for damaged modules."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import wasmtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler.vm import (
    Instruction,
    Machine,
    Step,
    Suspended,
    VMError,
    VMFormatError,
    VMFunction,
    VMModule,
    assemble,
    decode,
    encode,
)
from webrelax.compiler.vm.isa import LIMIT

from ...compiler.vm.strategies import VALUES, modules
from .wasm import WasmVM

SHARED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def test_there_are_no_imports_and_the_file_is_small(wasm_vm: WasmVM, vm_wasm: Path) -> None:
    assert list(wasm_vm.module.imports) == []
    assert vm_wasm.stat().st_size <= 30 * 1024
    exports = {item.name for item in wasm_vm.module.exports}
    assert {"memory", "vm_allocate", "vm_load", "vm_find", "vm_call", "vm_resume", "vm_stream", "vm_table"} <= exports


Outcome = tuple[object, ...]


def outcomes(start: Callable[[], Step | Suspended], values: Sequence[int]) -> list[Outcome]:
    """What a call and its resumptions give, up to its end or error."""
    seen: list[Outcome] = []
    try:
        result = start()
        for value in values:
            seen.append((result.commands, result.table))
            if isinstance(result, Step):
                break
            seen.append((result.buffer, result.offset))
            result = result.resume(value)
    except VMError as error:
        # A product of 63 bits reaches the page as an f64.
        actual = int(float(error.actual))
        seen.append((error.fault, error.message, error.expected, actual, error.function, error.instruction))
    return seen


@SHARED
@given(modules(), st.data())
def test_both_vms_do_the_same(wasm_vm: WasmVM, module: VMModule, data: st.DataObject) -> None:
    machine = Machine(module)
    wasm_vm.load(encode(module))
    index = data.draw(st.integers(0, len(module.functions) - 1))
    count = module.functions[index].argument_count
    arguments = data.draw(st.lists(VALUES, min_size=count, max_size=count))
    first_row, rows = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9))
    values = data.draw(st.lists(VALUES, min_size=4, max_size=4))
    expected = outcomes(partial(machine.call, index, arguments, first_row, rows), values)
    assert outcomes(partial(wasm_vm.call, index, arguments, first_row, rows), values) == expected


@SHARED
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4))
def test_both_compute_the_same(wasm_vm: WasmVM, pairs: list[tuple[int, int]]) -> None:
    for operator in ("add", "sub", "mul", "floordiv", "floormod", "min", "max"):
        module = assemble(
            "module row_slots=4 kernels=0 sets=0 buffers=0\nfunction f arguments=2 slots=3 table_slots=3\n"
            f"argument s1 a0\nargument s2 a1\n{operator} s0 s1 s2\nreturn"
        )
        wasm_vm.load(encode(module))
        machine = Machine(module)
        for pair in pairs:
            expected = outcomes(partial(machine.call, 0, pair), [0])
            assert outcomes(partial(wasm_vm.call, 0, pair), [0]) == expected


def fault_of(load: Callable[[bytes], object], data: bytes) -> str | None:
    try:
        load(data)
    except VMFormatError as error:
        return error.fault
    return None


@SHARED
@given(modules(), st.data())
def test_damage_is_refused_by_both_or_harmless(wasm_vm: WasmVM, module: VMModule, data: st.DataObject) -> None:
    damaged = bytearray(encode(module))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    check_damaged(wasm_vm, bytes(damaged[: data.draw(st.sampled_from([None, len(damaged) - 1, len(damaged) // 2]))]))


@SHARED
@given(modules(), st.data())
def test_words_out_of_range_are_refused_by_both(wasm_vm: WasmVM, module: VMModule, data: st.DataObject) -> None:
    damaged = bytearray(encode(module))
    at = 4 * data.draw(st.integers(1, len(damaged) // 4 - 1))
    word = data.draw(st.sampled_from([0, 1, 2, 3, 20, 255, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]))
    damaged[at : at + 4] = word.to_bytes(4, "little")
    check_damaged(wasm_vm, bytes(damaged))


@SHARED
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(wasm_vm: WasmVM, data: bytes, with_header: bool) -> None:
    check_damaged(wasm_vm, b"WRVM\x01\0\0\0\x04\0\0\0" + data if with_header else data)


def check_damaged(wasm_vm: WasmVM, data: bytes) -> None:
    refused = fault_of(decode, data) is not None
    assert (fault_of(wasm_vm.load, data) is not None) == refused
    if refused:
        assert wasm_vm.find("") == -1
        with pytest.raises(VMError, match="no module is loaded"):
            wasm_vm.call(0, [])
        return
    module = decode(data)
    machine = Machine(module)
    for index, function in enumerate(module.functions):
        arguments = [5] * function.argument_count
        expected = outcomes(partial(machine.call, index, arguments, 0, 3), [1, 2])
        assert outcomes(partial(wasm_vm.call, index, arguments, 0, 3), [1, 2]) == expected


def test_every_broken_rule_has_the_same_fault(wasm_vm: WasmVM) -> None:
    """One damaged word at a time, all of them: with a single fault, both loaders name it alike."""
    code = (
        Instruction("argument", (0, 0)),
        Instruction("call", (0, 1, 1)),
        Instruction("jump_if_zero", (1, 4)),
        Instruction("read", (1, 1, 8)),
        Instruction("return"),
    )
    functions = (
        VMFunction("first", 1, 1, 1, (Instruction("return"),)),
        VMFunction("main", 1, 3, 2, code),
    )
    data = encode(VMModule(functions, ("a text",), 1, 1, 2, 4))
    opcodes = range(len(data) - len("firstmaina text") - 6 * 24, len(data), 24)
    differ = []
    for at in range(0, len(data) // 4 * 4, 4):
        original = int.from_bytes(data[at : at + 4], "little")
        for word in (*range(9), max(original - 1, 0), original + 1, 1 << 30, (1 << 32) - 1):
            damaged = data[:at] + word.to_bytes(4, "little") + data[at + 4 :]
            faults = [fault_of(load, damaged) for load in (decode, wasm_vm.load)]
            if at in opcodes:  # another opcode may make several operands wrong: either may be named
                faults = ["refused" if fault else None for fault in faults]
            if faults[0] != faults[1]:
                differ.append((at, word, *faults))
    assert differ == []


def test_a_module_over_the_limit_is_not_allocated(wasm_vm: WasmVM) -> None:
    assert wasm_vm.invoke("vm_allocate", LIMIT["MODULE_BYTES"] + 1) == 0
    pointer = wasm_vm.invoke("vm_allocate", LIMIT["MODULE_BYTES"])
    assert wasm_vm.memory.data_len(wasm_vm.store) >= pointer + LIMIT["MODULE_BYTES"]


def test_find(wasm_vm: WasmVM) -> None:
    wasm_vm.load(
        encode(
            assemble(
                "module row_slots=4 kernels=0 sets=0 buffers=0\n"
                "function decode arguments=0 slots=0 table_slots=0\nreturn\n"
                "function prefill arguments=0 slots=0 table_slots=0\nreturn\n"
            )
        )
    )
    assert [wasm_vm.find(name) for name in ("prefill", "decode", "", "prefil", "prefill2")] == [1, 0, -1, -1, -1]


def test_resuming_is_refused_unless_suspended(wasm_vm: WasmVM) -> None:
    text = "module row_slots=4 kernels=0 sets=0 buffers=1\nfunction f arguments=0 slots=1 table_slots=1\n"
    wasm_vm.load(encode(assemble(text + "read s0 m0 4\nreturn")))
    with pytest.raises(VMError, match="not suspended"):
        wasm_vm.resume(1)
    assert isinstance(wasm_vm.call(0, []), Suspended)
    assert wasm_vm.resume(-3) == Step(((0,),), [-3, 0, 0, 0])
    with pytest.raises(VMError, match="not suspended"):
        wasm_vm.resume(1)


def fan_out(levels: int, body: str) -> VMModule:
    """Functions of which each calls the one before it many times: the work multiplies."""
    text = "module row_slots=4 kernels=1 sets=1 buffers=0\n"
    text += f"function f0 arguments=0 slots=1 table_slots=0\nconst s0 1\n{body}return\n"
    for level in range(1, levels):
        text += f"function f{level} arguments=0 slots=0 table_slots=0\n" + f"call f{level - 1} 0 0\n" * 16 + "return\n"
    return assemble(text)


def tower(levels: int) -> VMModule:
    """Functions of the largest frames, each of which calls the one before it twice."""
    text = "module row_slots=4 kernels=0 sets=0 buffers=0\n"
    for level in range(levels):
        calls = f"call f{level - 1} 0 0\n" if level else ""
        text += f"function f{level} arguments=0 slots={LIMIT['FRAME_SLOTS']} table_slots=0\n{2 * calls}return\n"
    return assemble(text)


def test_a_return_gives_slots_back(wasm_vm: WasmVM) -> None:
    module = tower(6)  # 63 calls; 16 frames would fill the stack
    wasm_vm.load(encode(module))
    assert wasm_vm.call(5, [], rows=63) == Machine(module).call(5, [], rows=63)


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        (fan_out(6, ""), "rows"),
        (tower(17), "stack"),
        (fan_out(3, "const s0 1\n" * 5000), "instructions"),
        (fan_out(3, "dispatch k0 b0 s0 s0 s0\n" * 600), "stream"),
    ],
)
def test_limits_hold_in_both(wasm_vm: WasmVM, module: VMModule, fault: str) -> None:
    wasm_vm.load(encode(module))
    last = len(module.functions) - 1
    expected = outcomes(partial(Machine(module).call, last, [], 0, LIMIT["ROWS"]), [0])
    assert expected[0][0] == fault
    assert outcomes(partial(wasm_vm.call, last, [], 0, LIMIT["ROWS"]), [0]) == expected


def test_a_host_that_calls_wrongly_gets_an_error_never_a_trap(wasm_vm: WasmVM) -> None:
    text = "module row_slots=16384 kernels=0 sets=0 buffers=0\nfunction f arguments=0 slots=0 table_slots=0\nreturn"
    wasm_vm.load(encode(assemble(text)))
    numbers = [-(1 << 31), -1, 0, 1, 2, 17, 4096, (1 << 31) - 1]
    source = random.Random(1)
    for _ in range(500):
        function, count, first_row, rows = (source.choice(numbers) for _ in range(4))
        try:
            assert wasm_vm.invoke("vm_call", function, count, first_row, rows) >= 0
            wasm_vm.invoke("vm_text", function)
            wasm_vm.invoke("vm_load", count, rows)
        except wasmtime.Trap as trap:
            pytest.fail(f"vm_call({function}, {count}, {first_row}, {rows}) trapped: {trap}")
