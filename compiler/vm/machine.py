"""The reference VM: what `packaging/vm/vm.cpp` must do, command for command and fault for fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .errors import VMError
from .isa import COMMAND_FIELDS, LIMIT, Command, Instruction
from .module import VMFunction, VMModule, validate


@dataclass(frozen=True)
class Step:
    """A finished call: its commands, (END,) last, and its table of `rows` x `row_slots` integers, row by row."""

    commands: tuple[tuple[int, ...], ...]
    table: list[int]


@dataclass(frozen=True)
class Suspended:
    """A call that waits for the i32 at byte `offset` of device buffer `buffer`, once `commands` (READ last) are done.

    `resume(value)` goes on, once; the commands of what it returns are those after the suspension.
    """

    commands: tuple[tuple[int, ...], ...]
    table: list[int]
    buffer: int
    offset: int
    resume: Callable[[int], Step | Suspended]


class Machine:
    """Runs calls of one module. Raises VMFormatError for a module that breaks the rules."""

    def __init__(self, module: VMModule) -> None:
        validate(module)
        self.module = module

    def call(
        self, function: str | int, arguments: Sequence[int], first_row: int = 0, rows: int = 1
    ) -> Step | Suspended:
        """Calls a function with i32 arguments; its row is `first_row`, its nested calls take the `rows - 1` after it.

        Raises VMError.
        """
        index = self.module.find(function) if isinstance(function, str) else function
        if index is None or not 0 <= index < len(self.module.functions):
            raise VMError("no_function", len(self.module.functions), -1 if index is None else index)
        if rows < 1 or first_row < 0 or first_row + rows > LIMIT["ROWS"]:
            raise VMError("row_range", LIMIT["ROWS"], first_row + rows)
        if rows * self.module.row_slots > LIMIT["TABLE_WORDS"]:
            raise VMError("table_size", LIMIT["TABLE_WORDS"], rows * self.module.row_slots)
        callee = self.module.functions[index]
        if len(arguments) != callee.argument_count:
            raise VMError("argument_count", callee.argument_count, len(arguments), function=callee.name)
        run = _Run(self.module, first_row, rows)
        run.enter(index, arguments)
        return run.go()


@dataclass
class _Frame:
    index: int
    function: VMFunction
    arguments: Sequence[int]
    row: int
    slots: list[int]
    position: int = 0


@dataclass
class _Run:
    module: VMModule
    first_row: int
    rows: int
    frames: list[_Frame] = field(default_factory=list)
    commands: list[tuple[int, ...]] = field(default_factory=list)
    used_rows: int = 0
    used_slots: int = 0
    executed: int = 0
    stream_words: int = 0
    waiting_slot: int = 0

    def __post_init__(self) -> None:
        self.table = [0] * (self.rows * self.module.row_slots)

    def enter(self, index: int, arguments: Sequence[int]) -> None:
        function = self.module.functions[index]
        if self.used_rows == self.rows:
            raise self.fault("rows", self.rows, self.rows + 1)
        self.used_slots += function.slots
        if self.used_slots > LIMIT["STACK_SLOTS"]:
            raise self.fault("stack", LIMIT["STACK_SLOTS"], self.used_slots)
        self.frames.append(_Frame(index, function, arguments, self.used_rows, [0] * function.slots))
        self.used_rows += 1

    def go(self) -> Step | Suspended:
        while self.frames:
            frame = self.frames[-1]
            instruction = frame.function.code[frame.position]
            frame.position += 1
            self.executed += 1
            if self.executed > LIMIT["INSTRUCTIONS"]:
                raise self.fault("instructions", LIMIT["INSTRUCTIONS"], self.executed)
            if instruction.op == "read":
                self.waiting_slot, buffer, offset = instruction.args
                self.emit(Command.READ, buffer, offset)
                return Suspended(self.take_commands(), list(self.table), buffer, offset, self.resume)
            self.execute(frame, instruction)
        self.emit(Command.END)
        return Step(self.take_commands(), list(self.table))

    def resume(self, value: int) -> Step | Suspended:
        self.set(self.frames[-1], self.waiting_slot, value)
        return self.go()

    def execute(self, frame: _Frame, instruction: Instruction) -> None:
        slots, args = frame.slots, instruction.args
        match instruction.op:
            case "const":
                self.set(frame, args[0], args[1])
            case "move":
                self.set(frame, args[0], slots[args[1]])
            case "argument":
                self.set(frame, args[0], frame.arguments[args[1]])
            case "check_equal" if slots[args[0]] != slots[args[1]]:
                raise self.fault("check_equal", slots[args[1]], slots[args[0]], self.module.strings[args[2]])
            case "check_less_equal" if slots[args[0]] > slots[args[1]]:
                raise self.fault("check_less_equal", slots[args[1]], slots[args[0]], self.module.strings[args[2]])
            case "check_greater_equal" if slots[args[0]] < slots[args[1]]:
                raise self.fault("check_greater_equal", slots[args[1]], slots[args[0]], self.module.strings[args[2]])
            case "check_equal" | "check_less_equal" | "check_greater_equal":
                pass
            case "dispatch":
                self.dispatch(frame, *args)
            case "copy":
                self.copy(frame, *args)
            case "call":
                index, first, count = args
                self.enter(index, slots[first : first + count])
            case "jump":
                frame.position = args[0]
            case "jump_if_zero":
                if slots[args[0]] == 0:
                    frame.position = args[1]
            case "return":
                self.frames.pop()
                self.used_slots -= len(slots)
            case operator:
                self.set(frame, args[0], self.arithmetic(operator, slots[args[1]], slots[args[2]]))

    def arithmetic(self, operator: str, a: int, b: int) -> int:
        match operator:
            case "add":
                value = a + b
            case "sub":
                value = a - b
            case "mul":
                value = a * b
            case "min":
                value = min(a, b)
            case "max":
                value = max(a, b)
            case "floordiv" | "floormod" if b == 0:
                raise self.fault("division", 0, a)
            case "floordiv":
                value = a // b
            case _:
                value = a % b
        if not -(1 << 31) <= value < 1 << 31:
            raise self.fault("overflow", 0, value)
        return value

    def dispatch(self, frame: _Frame, kernel: int, binding_set: int, *dimensions: int) -> None:
        grid = [frame.slots[slot] for slot in dimensions]
        for size in grid:
            if not 0 <= size <= LIMIT["GRID"]:
                raise self.fault("grid", LIMIT["GRID"], size)
        if 0 not in grid:
            self.emit(Command.DISPATCH, kernel, binding_set, *grid, self.first_row + frame.row)

    def copy(self, frame: _Frame, src: int, src_offset: int, dst: int, dst_offset: int, size: int) -> None:
        values = [frame.slots[slot] for slot in (src_offset, dst_offset, size)]
        for value in values:
            if value < 0 or value % 4:
                raise self.fault("copy", 0, value)
        if values[2]:
            self.emit(Command.COPY, src, values[0], dst, values[1], values[2])

    def set(self, frame: _Frame, slot: int, value: int) -> None:
        frame.slots[slot] = value
        if slot < frame.function.table_slots:
            self.table[frame.row * self.module.row_slots + slot] = value

    def emit(self, command: Command, *words: int) -> None:
        self.stream_words += 1 + len(words)
        if self.stream_words > LIMIT["STREAM_WORDS"]:
            raise self.fault("stream", LIMIT["STREAM_WORDS"], self.stream_words)
        self.commands.append((int(command), *words))

    def take_commands(self) -> tuple[tuple[int, ...], ...]:
        commands = tuple(self.commands)
        self.commands.clear()
        self.stream_words = 0
        return commands

    def fault(self, name: str, expected: int, actual: int, message: str = "") -> VMError:
        frame = self.frames[-1] if self.frames else None
        where = (frame.function.name, frame.position - 1) if frame else ("", -1)
        return VMError(name, expected, actual, function=where[0], instruction=where[1], message=message)


def commands_of(words: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Splits a command stream of words, as the wasm VM writes it, into the commands that Step holds."""
    at = 0
    while at < len(words):
        length = 1 + len(COMMAND_FIELDS[Command(words[at])])
        yield tuple(words[at : at + length])
        at += length
