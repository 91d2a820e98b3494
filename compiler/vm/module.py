"""VM modules: their data, the rules they must keep, and their bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .errors import VMFormatError
from .isa import LIMIT, MAGIC, MAX_OPERANDS, OPCODE, OPCODES, VERSION, Instruction, Operand

_INSTRUCTION = struct.Struct(f"<I{MAX_OPERANDS}i")
_FUNCTION = struct.Struct("<4I")
_HEADER = struct.Struct("<4s9I")


@dataclass(frozen=True)
class VMFunction:
    """`slots` i32 values, zero at entry, of which the first `table_slots` are mirrored into the call's table row."""

    name: str
    argument_count: int
    slots: int
    table_slots: int
    code: tuple[Instruction, ...]


@dataclass(frozen=True)
class VMModule:
    """`strings` are messages of checks, printable ASCII as function names are; `kernels`, `binding_sets` and `buffers`
    are counts: the VM knows these things by number alone; `row_slots`, a multiple of 4, is the width of a table row."""

    functions: tuple[VMFunction, ...]
    strings: tuple[str, ...]
    kernels: int
    binding_sets: int
    buffers: int
    row_slots: int

    def find(self, name: str) -> int | None:
        """The index of the first function of this name."""
        return next((index for index, function in enumerate(self.functions) if function.name == name), None)


def validate(module: VMModule) -> None:
    """Checks every rule that the C++ loader checks. Raises VMFormatError."""
    counts = (module.kernels, module.binding_sets, module.buffers, len(module.functions), len(module.strings))
    _validate_header(module.row_slots, *counts)
    for index, function in enumerate(module.functions):
        _validate_function(module, index, function)
    for text in (*(function.name for function in module.functions), *module.strings):
        if not all(" " <= character <= "~" for character in text):
            raise VMFormatError("bad_text")
    for index, function in enumerate(module.functions):
        for position, instruction in enumerate(function.code):
            _validate_instruction(module, index, position, instruction)
        if function.code[-1].op != "return":
            raise VMFormatError("bad_end", function=index)


def _validate_header(row_slots: int, *counts: int) -> None:
    if not 0 <= row_slots <= LIMIT["ROW_SLOTS"]:
        raise VMFormatError("bad_header", LIMIT["ROW_SLOTS"], row_slots)
    if row_slots == 0 or row_slots % 4:
        raise VMFormatError("bad_row", 0, row_slots)
    for count in counts:
        if not 0 <= count <= LIMIT["OBJECTS"]:
            raise VMFormatError("bad_header", LIMIT["OBJECTS"], count)


def _validate_function(module: VMModule, index: int, function: VMFunction) -> None:
    for value, limit in (
        (function.argument_count, LIMIT["ARGUMENTS"]),
        (function.slots, LIMIT["FRAME_SLOTS"]),
        (function.table_slots, min(function.slots, module.row_slots)),
    ):
        if not 0 <= value <= limit:
            raise VMFormatError("bad_function", limit, value, function=index)
    if not function.code:
        raise VMFormatError("bad_code", function=index)


def _validate_instruction(module: VMModule, index: int, position: int, instruction: Instruction) -> None:
    function = module.functions[index]
    opcode = OPCODE.get(instruction.op)
    if opcode is None:
        raise VMFormatError("bad_opcode", function=index, instruction=position)
    if len(instruction.args) != len(opcode.operands):
        raise ValueError(f"{instruction.op} takes {len(opcode.operands)} operands and got {len(instruction.args)}")
    below = {
        Operand.SLOT: function.slots,
        Operand.ARGUMENT: function.argument_count,
        Operand.KERNEL: module.kernels,
        Operand.SET: module.binding_sets,
        Operand.BUFFER: module.buffers,
        Operand.FUNCTION: index,  # a function calls only those before it: no recursion
        Operand.STRING: len(module.strings),
        Operand.TARGET: len(function.code),
        Operand.OFFSET: 1 << 31,
    }
    for kind, value in zip(opcode.kinds, instruction.args, strict=True):
        limit = below.get(kind)
        if limit is None:
            if not -(1 << 31) <= value < 1 << 31:
                raise VMFormatError("bad_operand", (1 << 31) - 1, value, function=index, instruction=position)
        elif not 0 <= value < limit or (kind is Operand.OFFSET and value % 4):
            raise VMFormatError("bad_operand", limit - 1, value, function=index, instruction=position)
        if kind is Operand.TARGET and value <= position:  # forward only: every program ends
            raise VMFormatError("bad_jump", position, value, function=index, instruction=position)
    if instruction.op == "call":
        callee, first, count = instruction.args
        if count != module.functions[callee].argument_count:
            raise VMFormatError(
                "bad_call", module.functions[callee].argument_count, count, function=index, instruction=position
            )
        if not 0 <= first <= function.slots - count:
            raise VMFormatError("bad_operand", function.slots - count, first, function=index, instruction=position)


def encode(module: VMModule) -> bytes:
    """The module's bytes, as `docs/vm.md` lays them out. Raises VMFormatError."""
    validate(module)
    code = [instruction for function in module.functions for instruction in function.code]
    texts = [text.encode("ascii") for text in (*(function.name for function in module.functions), *module.strings)]
    records, code_end = bytearray(), 0
    for function in module.functions:
        code_end += len(function.code)
        records += _FUNCTION.pack(function.argument_count, function.slots, function.table_slots, code_end)
    text_end = 0
    for text in texts:
        text_end += len(text)
        records += struct.pack("<I", text_end)
    for instruction in code:
        operands = (*instruction.args, *(0,) * (MAX_OPERANDS - len(instruction.args)))
        records += _INSTRUCTION.pack(OPCODE[instruction.op].number, *operands)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        module.row_slots,
        module.kernels,
        module.binding_sets,
        module.buffers,
        len(module.functions),
        len(module.strings),
        len(code),
        text_end,
    )
    data = header + bytes(records) + b"".join(texts)
    if len(data) > LIMIT["MODULE_BYTES"]:
        raise VMFormatError("too_large", LIMIT["MODULE_BYTES"], len(data))
    return data


def decode(data: bytes) -> VMModule:
    """The module in these bytes; encode() gives the same bytes back. Raises VMFormatError."""
    if len(data) < _HEADER.size:
        raise VMFormatError("too_short", _HEADER.size, len(data))
    if len(data) > LIMIT["MODULE_BYTES"]:
        raise VMFormatError("too_large", LIMIT["MODULE_BYTES"], len(data))
    magic, version, row_slots, kernels, sets, buffers, functions, strings, codes, text_bytes = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise VMFormatError("bad_magic")
    if version != VERSION:
        raise VMFormatError("bad_version", VERSION, version)
    _validate_header(row_slots, kernels, sets, buffers, functions, strings)
    texts = functions + strings
    size = _HEADER.size + functions * _FUNCTION.size + texts * 4 + codes * _INSTRUCTION.size + text_bytes
    if size != len(data):
        raise VMFormatError("bad_size", size, len(data))
    records = [_FUNCTION.unpack_from(data, _HEADER.size + index * _FUNCTION.size) for index in range(functions)]
    at = _HEADER.size + functions * _FUNCTION.size
    text_ends = struct.unpack_from(f"<{texts}I", data, at)
    at += 4 * texts
    spans = _spans([record[3] for record in records], codes)
    if spans is None:
        raise VMFormatError("bad_code")
    text_spans = _spans(list(text_ends), text_bytes)
    text_start = at + codes * _INSTRUCTION.size
    if text_spans is None or not data[text_start:].isascii():
        raise VMFormatError("bad_text")
    names = [data[text_start + start : text_start + end].decode("ascii") for start, end in text_spans]
    module = VMModule(
        functions=tuple(
            VMFunction(name, arguments, slots, table_slots, _decode_code(data, at, start, end, index))
            for index, (name, (arguments, slots, table_slots, _), (start, end)) in enumerate(
                zip(names[:functions], records, spans, strict=True)
            )
        ),
        strings=tuple(names[functions:]),
        kernels=kernels,
        binding_sets=sets,
        buffers=buffers,
        row_slots=row_slots,
    )
    validate(module)
    return module


def _spans(ends: list[int], total: int) -> list[tuple[int, int]] | None:
    """Consecutive spans that cover 0 .. total; None where the ends do not rise to it."""
    starts = [0, *ends]
    if starts[-1] != total or any(start > end for start, end in zip(starts, ends, strict=False)):
        return None
    return list(zip(starts, ends, strict=False))


def _decode_code(data: bytes, at: int, start: int, end: int, function: int) -> tuple[Instruction, ...]:
    code = []
    for index in range(start, end):
        number, *operands = _INSTRUCTION.unpack_from(data, at + index * _INSTRUCTION.size)
        if not 1 <= number <= len(OPCODES):
            raise VMFormatError("bad_opcode", len(OPCODES), number, function=function, instruction=index - start)
        opcode = OPCODES[number - 1]
        used = len(opcode.operands)
        for value in operands[used:]:
            if value:
                raise VMFormatError("bad_operand", 0, value, function=function, instruction=index - start)
        code.append(Instruction(opcode.name, tuple(operands[:used])))
    return tuple(code)
