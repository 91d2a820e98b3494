"""Random modules that keep every rule, and random calls of them."""

from __future__ import annotations

from hypothesis import strategies as st

from webrelax.compiler.vm import Instruction, VMFunction, VMModule
from webrelax.compiler.vm.isa import OPCODES, Opcode, Operand

VALUES = st.one_of(
    st.integers(-9, 9),
    st.sampled_from([64, 128, 65535, 65536, 1 << 30, (1 << 31) - 1, -(1 << 31)]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
# Most are legal grid dimensions and copy offsets: they reach the command stream.
IMMEDIATES = st.integers(0, 19).flatmap(lambda n: VALUES if n == 0 else st.sampled_from([0, 4, 8, 12, 64, 65532]))
COMMON = ("dispatch", "copy", "call", "read")
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
KERNELS, SETS, BUFFERS = 3, 4, 2


@st.composite
def modules(draw: st.DrawFn) -> VMModule:
    strings = tuple(draw(st.lists(TEXTS, max_size=3)))
    row_slots = draw(st.sampled_from([4, 8]))
    functions: list[VMFunction] = []
    for _ in range(draw(st.integers(1, 4))):
        slots = draw(st.integers(0, 8))
        functions.append(
            VMFunction(
                name=draw(TEXTS),
                argument_count=(arguments := draw(st.integers(0, 3))),
                slots=slots,
                table_slots=draw(st.integers(0, min(slots, row_slots))),
                code=draw(_code(slots, arguments, len(strings), tuple(functions))),
            )
        )
    return VMModule(tuple(functions), strings, KERNELS, SETS, BUFFERS, row_slots)


@st.composite
def _code(
    draw: st.DrawFn, slots: int, arguments: int, strings: int, callees: tuple[VMFunction, ...]
) -> tuple[Instruction, ...]:
    """First some slots get values, mostly such that commands accept; then anything goes."""
    prelude = [Instruction("const", (slot, draw(IMMEDIATES))) for slot in range(draw(st.integers(0, slots)))]
    start, size = len(prelude), len(prelude) + draw(st.integers(0, 14))
    reachable = [index for index, callee in enumerate(callees) if callee.argument_count <= slots]
    available = [opcode for opcode in OPCODES if _usable(opcode, slots, arguments, strings, bool(reachable))]
    available += 4 * [opcode for opcode in available if opcode.name in COMMON]
    code = prelude
    for position in range(start, size):
        opcode = draw(st.sampled_from(available))
        if opcode.name == "call":
            callee = draw(st.sampled_from(reachable))
            count = callees[callee].argument_count
            code.append(Instruction("call", (callee, draw(st.integers(0, slots - count)), count)))
            continue
        ranges = {
            Operand.IMMEDIATE: IMMEDIATES,
            Operand.SLOT: st.integers(0, max(slots - 1, 0)),
            Operand.ARGUMENT: st.integers(0, max(arguments - 1, 0)),
            Operand.KERNEL: st.integers(0, KERNELS - 1),
            Operand.SET: st.integers(0, SETS - 1),
            Operand.BUFFER: st.integers(0, BUFFERS - 1),
            Operand.STRING: st.integers(0, max(strings - 1, 0)),
            Operand.TARGET: st.integers(position + 1, size),
            Operand.OFFSET: st.integers(0, (1 << 29) - 1).map(lambda words: 4 * words),
        }
        code.append(Instruction(opcode.name, tuple(draw(ranges[kind]) for kind in opcode.kinds)))
    return (*code, Instruction("return"))


def _usable(opcode: Opcode, slots: int, arguments: int, strings: int, calls: bool) -> bool:
    missing = {
        Operand.SLOT: not slots,
        Operand.ARGUMENT: not arguments,
        Operand.STRING: not strings,
        Operand.FUNCTION: not calls,
    }
    return not any(missing.get(kind, False) for kind in opcode.kinds)
