"""The instruction set of the VM, written down once.

Everything that must agree between the Python reference VM, the C++ VM and the page is a table here: opcodes and the
kinds of their operands, commands, statuses, faults with their texts, and limits. `generate.py` turns the tables into
`packaging/vm/opcodes.h`, `web/vm_constants.js` and the tables of `docs/vm.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"WRVM"
VERSION = 2
MAX_OPERANDS = 5
"""Every instruction is stored as 1 + MAX_OPERANDS words, so that an instruction's index is its place."""


class Operand(IntEnum):
    """What an operand word means, and so the range the loader holds it to."""

    NONE = 0
    IMMEDIATE = 1
    SLOT = 2
    ARGUMENT = 3
    KERNEL = 4
    SET = 5
    BUFFER = 6
    FUNCTION = 7
    STRING = 8
    TARGET = 9
    OFFSET = 10
    """A byte offset into a device buffer: not negative and a multiple of 4."""


@dataclass(frozen=True)
class Opcode:
    number: int
    name: str
    operands: tuple[tuple[str, Operand], ...]
    summary: str

    @property
    def kinds(self) -> tuple[Operand, ...]:
        return tuple(kind for _, kind in self.operands)


@dataclass(frozen=True)
class Instruction:
    """One instruction: an opcode's name and one integer an operand. Jump targets are instruction indices."""

    op: str
    args: tuple[int, ...] = ()


_S, _T = Operand.SLOT, Operand.STRING
_BINARY = (("dst", _S), ("a", _S), ("b", _S))
_DEFINITIONS: tuple[tuple[str, tuple[tuple[str, Operand], ...], str], ...] = (
    ("const", (("dst", _S), ("value", Operand.IMMEDIATE)), "dst = value"),
    ("move", (("dst", _S), ("src", _S)), "dst = src"),
    ("add", _BINARY, "dst = a + b"),
    ("sub", _BINARY, "dst = a - b"),
    ("mul", _BINARY, "dst = a * b"),
    ("floordiv", _BINARY, "dst = a // b, rounded towards minus infinity"),
    ("floormod", _BINARY, "dst = a - (a // b) * b, which has the sign of b"),
    ("min", _BINARY, "dst = the smaller of a and b"),
    ("max", _BINARY, "dst = the larger of a and b"),
    ("argument", (("dst", _S), ("index", Operand.ARGUMENT)), "dst = argument number index of this call"),
    ("check_equal", (("a", _S), ("b", _S), ("message", _T)), "refuse unless a = b, the expected value"),
    ("check_less_equal", (("a", _S), ("b", _S), ("message", _T)), "refuse unless a <= b, the bound"),
    ("check_greater_equal", (("a", _S), ("b", _S), ("message", _T)), "refuse unless a >= b, the bound"),
    (
        "dispatch",
        (("kernel", Operand.KERNEL), ("set", Operand.SET), ("x", _S), ("y", _S), ("z", _S)),
        "command DISPATCH with this frame's row, unless x, y or z is 0",
    ),
    (
        "copy",
        (("src", Operand.BUFFER), ("src_offset", _S), ("dst", Operand.BUFFER), ("dst_offset", _S), ("bytes", _S)),
        "command COPY, unless bytes is 0; offsets and bytes are multiples of 4",
    ),
    (
        "call",
        (("function", Operand.FUNCTION), ("first", Operand.IMMEDIATE), ("count", Operand.IMMEDIATE)),
        "call a function of lower index with the slots first .. first+count-1 as arguments",
    ),
    (
        "read",
        (("dst", _S), ("buffer", Operand.BUFFER), ("offset", Operand.OFFSET)),
        "command READ: suspend; dst = the i32 that the host resumes with",
    ),
    ("jump", (("target", Operand.TARGET),), "go on at instruction target, which must be further down"),
    ("jump_if_zero", (("slot", _S), ("target", Operand.TARGET)), "the same if slot is 0"),
    ("return", (), "end of the call"),
)

# Numbers start at 1: a zeroed word is no instruction.
OPCODES: tuple[Opcode, ...] = tuple(
    Opcode(number, name, operands, summary) for number, (name, operands, summary) in enumerate(_DEFINITIONS, start=1)
)
OPCODE: dict[str, Opcode] = {opcode.name: opcode for opcode in OPCODES}


class Command(IntEnum):
    """First word of a command in the stream; see COMMAND_FIELDS for the words that follow."""

    END = 0
    DISPATCH = 1
    COPY = 2
    READ = 3


COMMAND_FIELDS: dict[Command, tuple[str, ...]] = {
    Command.END: (),
    Command.DISPATCH: ("kernel", "set", "x", "y", "z", "row"),
    Command.COPY: ("src", "src_offset", "dst", "dst_offset", "bytes"),
    Command.READ: ("buffer", "offset"),
}


class Status(IntEnum):
    """What a call or a resumption returns; a larger number is a fault's code."""

    DONE = 0
    SUSPENDED = 1


LIMITS: dict[str, tuple[int, str]] = {
    "MODULE_BYTES": (1 << 24, "bytes of a module"),
    "ROW_SLOTS": (1 << 14, "slots of a table row: WebGPU's 64 KiB for a uniform binding"),
    "OBJECTS": (1 << 20, "kernels, binding sets, buffers, functions, strings: each"),
    "ARGUMENTS": (1 << 12, "arguments of a function"),
    "FRAME_SLOTS": (1 << 14, "slots of a function"),
    "STACK_SLOTS": (1 << 18, "slots of all active calls together"),
    "ROWS": (1 << 12, "table rows, the first row included"),
    "TABLE_WORDS": (1 << 18, "words of the table of one call"),
    "STREAM_WORDS": (1 << 20, "words of the command stream of one call or resumption"),
    "INSTRUCTIONS": (1 << 20, "instructions run by one call, its nested calls and resumptions included"),
    "GRID": (65535, "workgroups a dimension"),
}
LIMIT: dict[str, int] = {name: value for name, (value, _) in LIMITS.items()}


@dataclass(frozen=True)
class Fault:
    """A reason to refuse. The text is filled with {message}, {expected}, {actual}, {function} and {instruction}."""

    code: int
    name: str
    text: str


_FAULT_TEXTS: tuple[tuple[str, str], ...] = (
    # Loading: a damaged or foreign module.
    ("too_short", "the module has {actual} bytes, fewer than the {expected} of a header: it is damaged"),
    ("too_large", "the module has {actual} bytes, more than the limit of {expected}"),
    ("bad_magic", "the module does not begin with WRVM: it is damaged or not a module"),
    ("bad_version", "the module has version {actual} and this VM reads version {expected}: build the model again"),
    ("bad_header", "the module's header holds the number {actual} where at most {expected} is allowed: it is damaged"),
    ("bad_row", "the module's table row has {actual} slots, which is not a positive multiple of 4"),
    ("bad_size", "the module's sections need {expected} bytes and it has {actual}: it is damaged"),
    ("bad_function", "function {function} of the module declares {actual} where at most {expected} is allowed"),
    ("bad_code", "the code of function {function} is empty or out of order: the module is damaged"),
    ("bad_text", "the module's texts are not consecutive printable ASCII: it is damaged"),
    ("bad_opcode", "instruction {instruction} of function {function} has the unknown opcode {actual}"),
    ("bad_operand", "instruction {instruction} of function {function} has operand {actual}; its limit is {expected}"),
    ("bad_jump", "instruction {instruction} of function {function} jumps to {actual}, which is not further down in it"),
    ("bad_end", "function {function} does not end in a return"),
    ("bad_call", "instruction {instruction} of function {function} passes {actual} arguments; {expected} are taken"),
    # Calling.
    ("not_loaded", "no module is loaded"),
    ("not_suspended", "the VM is not suspended, so it cannot resume"),
    ("no_function", "the module has {expected} functions, so there is no function {actual}"),
    ("argument_count", "function {function} takes {expected} arguments and got {actual}"),
    ("row_range", "a call uses at least one table row and rows end at {expected}; this one's would end at {actual}"),
    ("table_size", "the table would have {actual} words; the limit is {expected}"),
    # Running.
    ("check_equal", "{message}: expected {expected}, got {actual}"),
    ("check_less_equal", "{message}: expected at most {expected}, got {actual}"),
    ("check_greater_equal", "{message}: expected at least {expected}, got {actual}"),
    ("overflow", "instruction {instruction} of function {function} computes {actual}, which does not fit 32 bits"),
    ("division", "instruction {instruction} of function {function} divides {actual} by zero"),
    ("grid", "instruction {instruction} of function {function} has a grid dimension {actual}, not 0 to {expected}"),
    ("copy", "instruction {instruction} of function {function} copies with {actual}, not a multiple of 4 from 0 up"),
    ("rows", "the call needs more than the {expected} table rows it was given"),
    ("stack", "the nested calls need {actual} slots; the limit is {expected}"),
    ("stream", "the command stream would have {actual} words; the limit is {expected}"),
    ("instructions", "the call runs more than {expected} instructions"),
)
FAULTS: tuple[Fault, ...] = tuple(
    Fault(code, name, text) for code, (name, text) in enumerate(_FAULT_TEXTS, start=len(Status))
)
FAULT: dict[str, Fault] = {fault.name: fault for fault in FAULTS}
