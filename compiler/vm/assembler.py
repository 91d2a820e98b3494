"""The text form of a module.

    module row_slots=4 kernels=1 sets=1 buffers=2
    string "n must be at most 128"
    function prefill arguments=1 slots=3 table_slots=1
        argument s0 a0
        const s1 128
        check_less_equal s0 s1 t0       ; n must be at most 128
        jump_if_zero s0 end
        dispatch k0 b0 s0 s0 s0
    end:
        return

Operands carry a letter for their kind: s slot, a argument, k kernel, b binding set, m buffer (memory), f function, t
string (text); targets are labels, other numbers stand alone. A semicolon starts a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import WebrelaxError
from .isa import OPCODE, Instruction, Operand
from .module import VMFunction, VMModule, validate

_PREFIX: dict[Operand, str] = {
    Operand.SLOT: "s",
    Operand.ARGUMENT: "a",
    Operand.KERNEL: "k",
    Operand.SET: "b",
    Operand.BUFFER: "m",
    Operand.FUNCTION: "f",
    Operand.STRING: "t",
    Operand.IMMEDIATE: "",
    Operand.OFFSET: "",
}
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s";]+)')


def disassemble(module: VMModule) -> str:
    """The module as text; assemble() gives the same module back."""
    return "\n".join(_module_lines(module)) + "\n"


def _module_lines(module: VMModule) -> Iterator[str]:
    yield (
        f"module row_slots={module.row_slots} kernels={module.kernels} "
        f"sets={module.binding_sets} buffers={module.buffers}"
    )
    for text in module.strings:
        yield f"string {json.dumps(text)}"
    for index, function in enumerate(module.functions):
        yield ""
        name = function.name if _NAME.fullmatch(function.name) else json.dumps(function.name)
        yield (
            f"function {name} arguments={function.argument_count} slots={function.slots} "
            f"table_slots={function.table_slots}    ; f{index}"
        )
        yield from _code_lines(module, function)


def _code_lines(module: VMModule, function: VMFunction) -> Iterator[str]:
    targets = {
        value
        for instruction in function.code
        for kind, value in zip(OPCODE[instruction.op].kinds, instruction.args, strict=True)
        if kind is Operand.TARGET
    }
    for position, instruction in enumerate(function.code):
        if position in targets:
            yield f"L{position}:"
        words, notes = [instruction.op], []
        for kind, value in zip(OPCODE[instruction.op].kinds, instruction.args, strict=True):
            words.append(f"L{value}" if kind is Operand.TARGET else f"{_PREFIX[kind]}{value}")
            if kind is Operand.STRING:
                notes.append(module.strings[value])
            if kind is Operand.FUNCTION:
                notes.append(module.functions[value].name)
        line = "    " + " ".join(words)
        yield f"{line:<40}; {', '.join(notes)}" if notes else line


@dataclass
class _Draft:
    name: str
    counts: Mapping[str, int]
    code: list[tuple[int, list[str]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def assemble(text: str) -> VMModule:
    """The module that a text describes. Raises WebrelaxError with the line, and VMFormatError for a broken rule."""
    header: Mapping[str, int] | None = None
    strings: list[str] = []
    drafts: list[_Draft] = []
    for number, line in enumerate(text.splitlines(), start=1):
        match _tokens(line, number):
            case []:
                pass
            case ["module", *pairs]:
                header = _pairs(pairs, ("row_slots", "kernels", "sets", "buffers"), number)
            case ["string", word]:
                strings.append(_quoted(word, number))
            case ["function", name, *pairs]:
                counts = _pairs(pairs, ("arguments", "slots", "table_slots"), number)
                drafts.append(_Draft(_quoted(name, number) if name.startswith('"') else name, counts))
            case [label] if label.endswith(":") and drafts:
                drafts[-1].labels[label[:-1]] = len(drafts[-1].code)
            case words if drafts:
                drafts[-1].code.append((number, words))
            case _:
                raise _error(number, "an instruction stands before the first function")
    if header is None:
        raise WebrelaxError("VM assembly has no module line")
    module = VMModule(
        functions=tuple(
            VMFunction(
                draft.name,
                draft.counts["arguments"],
                draft.counts["slots"],
                draft.counts["table_slots"],
                tuple(_instruction(words, draft.labels, number) for number, words in draft.code),
            )
            for draft in drafts
        ),
        strings=tuple(strings),
        kernels=header["kernels"],
        binding_sets=header["sets"],
        buffers=header["buffers"],
        row_slots=header["row_slots"],
    )
    validate(module)
    return module


def _tokens(line: str, number: int) -> list[str]:
    tokens, at = [], 0
    while at < len(line) and line[at:].strip() and not line[at:].lstrip().startswith(";"):
        found = _TOKEN.match(line, at)
        if found is None:
            raise _error(number, "a quoted text has no end")
        tokens.append(found[1])
        at = found.end()
    return tokens


def _pairs(words: list[str], names: tuple[str, ...], number: int) -> dict[str, int]:
    values = dict(word.split("=", 1) for word in words if "=" in word)
    if tuple(values) != names or len(words) != len(names):
        raise _error(number, "expected " + " ".join(f"{name}=N" for name in names))
    return {name: _integer(value, number) for name, value in values.items()}


def _instruction(words: list[str], labels: Mapping[str, int], number: int) -> Instruction:
    opcode = OPCODE.get(words[0])
    if opcode is None:
        raise _error(number, f"unknown instruction {words[0]}")
    if len(words) - 1 != len(opcode.operands):
        raise _error(number, f"{opcode.name} takes {len(opcode.operands)} operands")
    return Instruction(
        opcode.name,
        tuple(_operand(word, kind, labels, number) for word, kind in zip(words[1:], opcode.kinds, strict=True)),
    )


def _operand(word: str, kind: Operand, labels: Mapping[str, int], number: int) -> int:
    if kind is Operand.TARGET:
        if word not in labels:
            raise _error(number, f"unknown label {word}")
        return labels[word]
    if not word.startswith(_PREFIX[kind]):
        raise _error(number, f"{word} is not a {kind.name.lower()}: expected {_PREFIX[kind]} and a number")
    return _integer(word[len(_PREFIX[kind]) :], number)


def _integer(word: str, number: int) -> int:
    if not re.fullmatch(r"-?[0-9]+", word):
        raise _error(number, f"{word} is not a number")
    return int(word)


def _quoted(word: str, number: int) -> str:
    try:
        text = json.loads(word)
    except ValueError:
        text = None
    if not isinstance(text, str):
        raise _error(number, f"{word} is not a quoted text")
    return text


def _error(number: int, problem: str) -> WebrelaxError:
    return WebrelaxError(f"line {number} of VM assembly: {problem}")
