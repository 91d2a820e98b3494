from __future__ import annotations

from collections.abc import Sequence

import pytest

from webrelax.compiler.vm import Machine, Step, Suspended, VMError, assemble
from webrelax.compiler.vm.isa import LIMIT

HEADER = "module row_slots=4 kernels=4 sets=4 buffers=4\n"


def step(text: str, arguments: Sequence[int] = (), first_row: int = 0, rows: int = 1) -> Step:
    module = assemble(HEADER + text)
    result = Machine(module).call(len(module.functions) - 1, arguments, first_row, rows)
    assert isinstance(result, Step)
    return result


def fault(text: str, arguments: Sequence[int] = (), first_row: int = 0, rows: int = 1) -> VMError:
    with pytest.raises(VMError) as caught:
        step(text, arguments, first_row, rows)
    return caught.value


def binary(operator: str) -> str:
    return f"function f arguments=2 slots=3 table_slots=3\nargument s1 a0\nargument s2 a1\n{operator} s0 s1 s2\nreturn"


@pytest.mark.parametrize(
    ("operator", "a", "b", "value"),
    [
        ("add", 7, -9, -2),
        ("sub", 7, -9, 16),
        ("mul", -3, 5, -15),
        ("floordiv", -7, 2, -4),
        ("floordiv", 7, -2, -4),
        ("floordiv", -8, 2, -4),
        ("floormod", -7, 2, 1),
        ("floormod", 7, -2, -1),
        ("floormod", -(1 << 31), -1, 0),
        ("min", -7, 2, -7),
        ("max", -7, 2, 2),
    ],
)
def test_arithmetic(operator: str, a: int, b: int, value: int) -> None:
    assert step(binary(operator), (a, b)).table == [value, a, b, 0]


@pytest.mark.parametrize(
    ("operator", "a", "b", "value"),
    [("add", (1 << 31) - 1, 1, 1 << 31), ("mul", 1 << 16, 1 << 16, 1 << 32), ("floordiv", -(1 << 31), -1, 1 << 31)],
)
def test_overflow_is_a_fault(operator: str, a: int, b: int, value: int) -> None:
    error = fault(binary(operator), (a, b))
    assert (error.fault, error.actual) == ("overflow", value)
    assert str(error) == f"instruction 2 of function f computes {value}, which does not fit 32 bits"


@pytest.mark.parametrize("operator", ["floordiv", "floormod"])
def test_division_by_zero_is_a_fault(operator: str) -> None:
    assert fault(binary(operator), (3, 0)).fault == "division"


CHECK = """
string "n of tokens"
function f arguments=1 slots=2 table_slots=0
    argument s0 a0
    const s1 128
    check_{} s0 s1 t0
    return
"""


def test_checks_report_message_expected_and_actual() -> None:
    assert step(CHECK.format("equal"), [128]).commands == ((0,),)
    assert step(CHECK.format("less_equal"), [128]).commands == ((0,),)
    error = fault(CHECK.format("equal"), [127])
    assert (error.message, error.expected, error.actual) == ("n of tokens", 128, 127)
    assert str(fault(CHECK.format("less_equal"), [129])) == "n of tokens: expected at most 128, got 129"


def dispatch(x: int, y: int, z: int) -> str:
    return (
        "function f arguments=0 slots=3 table_slots=0\n"
        f"const s0 {x}\nconst s1 {y}\nconst s2 {z}\ndispatch k1 b2 s0 s1 s2\nreturn"
    )


def test_dispatch() -> None:
    assert step(dispatch(65535, 2, 3), first_row=5).commands == ((1, 1, 2, 65535, 2, 3, 5), (0,))
    assert step(dispatch(4, 0, 3)).commands == ((0,),)
    for bad in (65536, -1):
        error = fault(dispatch(0, bad, 1))
        assert (error.fault, error.expected, error.actual) == ("grid", 65535, bad)


def copy(src: int, dst: int, size: int) -> str:
    return (
        "function f arguments=0 slots=3 table_slots=0\n"
        f"const s0 {src}\nconst s1 {dst}\nconst s2 {size}\ncopy m1 s0 m2 s1 s2\nreturn"
    )


def test_copy() -> None:
    assert step(copy(4, 8, 12)).commands == ((2, 1, 4, 2, 8, 12), (0,))
    assert step(copy(4, 8, 0)).commands == ((0,),)
    assert [fault(copy(*values)).actual for values in [(-4, 0, 4), (0, 2, 4), (0, 0, 3)]] == [-4, 2, 3]


CALLS = """
function leaf arguments=2 slots=3 table_slots=1
    argument s1 a0
    argument s2 a1
    add s0 s1 s2
    const s1 1
    dispatch k0 b0 s0 s1 s1
    return
function middle arguments=1 slots=3 table_slots=2
    argument s1 a0
    const s2 10
    call f0 1 2
    return
function main arguments=1 slots=2 table_slots=1
    argument s0 a0
    const s1 100
    call f1 1 1
    call f0 0 2
    dispatch k3 b3 s0 s0 s0
    return
"""


def test_nested_calls_take_consecutive_rows() -> None:
    result = step(CALLS, [3], first_row=7, rows=5)
    assert result.commands == ((1, 0, 0, 110, 1, 1, 9), (1, 0, 0, 103, 1, 1, 10), (1, 3, 3, 3, 3, 3, 7), (0,))
    assert result.table == [3, 0, 0, 0, 0, 100, 0, 0, 110, 0, 0, 0, 103, 0, 0, 0, 0, 0, 0, 0]


def test_rows_beyond_the_budget_are_a_fault() -> None:
    error = fault(CALLS, [3], rows=3)
    assert (error.fault, error.expected, error.function, error.instruction) == ("rows", 3, "main", 3)


def test_jumps() -> None:
    text = "function f arguments=1 slots=1 table_slots=1\n argument s0 a0\n jump_if_zero s0 zero\n jump end\n" + (
        "zero:\n const s0 77\nend:\n return"
    )
    assert step(text, [0]).table[0] == 77
    assert step(text, [5]).table[0] == 5


READ = """
string "too many"
function inner arguments=0 slots=2 table_slots=2
    const s0 1
    dispatch k0 b0 s0 s0 s0
    read s1 m3 64
    dispatch k1 b1 s1 s0 s0
    return
function main arguments=0 slots=2 table_slots=2
    call f0 0 0
    read s1 m2 0
    const s0 5
    check_less_equal s1 s0 t0
    return
"""


def test_suspension() -> None:
    first = Machine(assemble(HEADER + READ)).call("main", [], rows=2)
    assert isinstance(first, Suspended)
    assert (first.commands, first.table) == (((1, 0, 0, 1, 1, 1, 1), (3, 3, 64)), [0, 0, 0, 0, 1, 0, 0, 0])
    assert (first.buffer, first.offset) == (3, 64)
    second = first.resume(9)
    assert isinstance(second, Suspended)
    assert (second.commands, second.table) == (((1, 1, 1, 9, 1, 1, 1), (3, 2, 0)), [0, 0, 0, 0, 1, 9, 0, 0])
    with pytest.raises(VMError, match="too many: expected at most 5, got 6"):
        second.resume(6)


def test_calls_are_checked() -> None:
    text = "function f arguments=1 slots=1 table_slots=1\nreturn"
    assert str(fault(text)) == "function f takes 1 arguments and got 0"
    assert fault(text, [1], rows=0).fault == "row_range"
    assert fault(text, [1], first_row=-1).fault == "row_range"
    assert fault(text, [1], first_row=LIMIT["ROWS"]).fault == "row_range"
    with pytest.raises(VMError, match="no function"):
        Machine(assemble(HEADER + text)).call("g", [1])


def test_limits_of_table_and_stack() -> None:
    wide = (
        "module row_slots=16384 kernels=0 sets=0 buffers=0\nfunction f arguments=0 slots=16384 table_slots=0\nreturn\n"
    )
    for index in range(16):
        wide += f"function f{index} arguments=0 slots=16384 table_slots=0\ncall f{index} 0 0\nreturn\n"
    machine = Machine(assemble(wide))
    with pytest.raises(VMError, match="the table would have 278528 words; the limit is 262144"):
        machine.call(0, [], rows=17)
    small = Machine(assemble(wide.replace("row_slots=16384", "row_slots=4")))
    assert isinstance(small.call(15, [], rows=17), Step)
    with pytest.raises(VMError, match="the nested calls need 278528 slots; the limit is 262144"):
        small.call(16, [], rows=17)
