from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.vm import (
    Instruction,
    VMFormatError,
    VMFunction,
    VMModule,
    assemble,
    decode,
    disassemble,
    encode,
    validate,
)
from webrelax.compiler.vm.generate import stale_files

from .strategies import modules


def module_of(*code: Instruction, arguments: int = 1, slots: int = 4, table_slots: int = 2) -> VMModule:
    first = VMFunction("first", 0, 1, 1, (Instruction("return"),))
    return VMModule((first, VMFunction("main", arguments, slots, table_slots, code)), ("text",), 1, 1, 1, 4)


@given(modules())
def test_bytes_round_trip(module: VMModule) -> None:
    data = encode(module)
    assert decode(data) == module
    assert encode(decode(data)) == data


@given(modules())
def test_text_round_trip(module: VMModule) -> None:
    text = disassemble(module)
    assert assemble(text) == module
    assert disassemble(assemble(text)) == text


RETURN = Instruction("return")


@pytest.mark.parametrize(
    ("module", "fault"),
    [
        (module_of(), "bad_code"),
        (module_of(Instruction("nop"), RETURN), "bad_opcode"),
        (module_of(Instruction("const", (0, 1))), "bad_end"),
        (module_of(Instruction("const", (4, 1)), RETURN), "bad_operand"),
        (module_of(Instruction("const", (-1, 1)), RETURN), "bad_operand"),
        (module_of(Instruction("const", (0, 1 << 31)), RETURN), "bad_operand"),
        (module_of(Instruction("argument", (0, 1)), RETURN), "bad_operand"),
        (module_of(Instruction("check_equal", (0, 0, 1)), RETURN), "bad_operand"),
        (module_of(Instruction("dispatch", (1, 0, 0, 0, 0)), RETURN), "bad_operand"),
        (module_of(Instruction("dispatch", (0, 1, 0, 0, 0)), RETURN), "bad_operand"),
        (module_of(Instruction("read", (0, 1, 0)), RETURN), "bad_operand"),
        (module_of(Instruction("read", (0, 0, 2)), RETURN), "bad_operand"),
        (module_of(Instruction("jump", (0,)), RETURN), "bad_jump"),
        (module_of(Instruction("jump", (2,)), RETURN), "bad_operand"),
        (module_of(Instruction("call", (1, 0, 1)), RETURN), "bad_operand"),
        (module_of(Instruction("call", (0, 0, 1)), RETURN), "bad_call"),
        (module_of(Instruction("call", (0, 5, 0)), RETURN), "bad_operand"),
        (module_of(RETURN, slots=1, table_slots=2), "bad_function"),
        (module_of(RETURN, slots=9, table_slots=5), "bad_function"),
        (module_of(RETURN, slots=1 << 15), "bad_function"),
        (dataclasses.replace(module_of(RETURN), row_slots=6), "bad_row"),
        (dataclasses.replace(module_of(RETURN), kernels=-1), "bad_header"),
        (dataclasses.replace(module_of(RETURN), strings=("\u00e9",)), "bad_text"),
    ],
)
def test_broken_rules_are_refused(module: VMModule, fault: str) -> None:
    with pytest.raises(VMFormatError) as caught:
        validate(module)
    assert caught.value.fault == fault
    assert "{" not in str(caught.value)


def test_damaged_headers_are_named() -> None:
    data = encode(module_of(RETURN))
    for damaged, fault in [
        (b"", "too_short"),
        (data[:39], "too_short"),
        (b"GGUF" + data[4:], "bad_magic"),
        (data[:4] + struct.pack("<I", 9) + data[8:], "bad_version"),
        (data[:-1], "bad_size"),
        (data + b"\0", "bad_size"),
        (data[:-1] + b"\n", "bad_text"),
    ]:
        with pytest.raises(VMFormatError) as caught:
            decode(damaged)
        assert caught.value.fault == fault


@given(modules(), st.data())
def test_damaged_modules_raise_one_error_or_decode(module: VMModule, data: st.DataObject) -> None:
    damaged = bytearray(encode(module))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(damaged))
    except VMFormatError:
        return
    assert encode(decoded) == damaged


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("string unquoted", "line 1 of VM assembly: unquoted is not a quoted text"),
        ("add s0 s0 s0", "line 1 of VM assembly: an instruction stands before the first function"),
        ("module rows=1", "line 1 of VM assembly: expected row_slots=N"),
        ("function f arguments=0 slots=1 table_slots=x", "x is not a number"),
        ("function f arguments=0 slots=1 table_slots=0\n return", "no module line"),
        ("function f arguments=0 slots=1 table_slots=0\n nop\nmodule row_slots=4 kernels=0 sets=0 buffers=0", "line 2"),
        (
            "function f arguments=0 slots=1 table_slots=0\n jump L\nmodule row_slots=4 kernels=0 sets=0 buffers=0",
            "label L",
        ),
        ('string "open', "a quoted text has no end"),
    ],
)
def test_assembly_errors_name_the_line(text: str, problem: str) -> None:
    with pytest.raises(WebrelaxError, match=problem):
        assemble(text)


def test_generated_files_are_current() -> None:
    assert stale_files() == [], "run `python -m webrelax.compiler.vm.generate`"
