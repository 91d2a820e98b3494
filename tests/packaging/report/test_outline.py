"""The text of a program with what repeats shown once, and what changed between two of them."""

from __future__ import annotations

from webrelax.compiler.ir.repeats import Repeat
from webrelax.packaging.report.diff import compare, unchanged
from webrelax.packaging.report.outline import Line, outline

LAYERS = 6


def module(call: str = "add") -> str:
    """A function with some layers, as the printer prints it."""
    params = ", ".join(f'cache_{at}: Tensor((n, 4), "f32")' for at in range(10))
    lines = [f'def f(x: Tensor((n,), "f32"), {params}) -> Tensor((n,), "f32"):']
    lines += [f"    # consumes cache_{at}, result {at + 1} carries it on" for at in range(10)]
    lines.append("    # requires n <= 4")
    lines.append('    first: Tensor((n,), "f32") = negate(x)')
    for at in range(LAYERS):
        lines.append(f'    a_{at}: Tensor((n,), "f32") = relu(b_{at - 1})')
        lines.append(f'    b_{at}: Tensor((n,), "f32") = {call}(a_{at}, a_{at})')
    lines += [
        f'    last: Tensor((), "f32") = if b_{LAYERS - 1}:',
        "        yield x",
        "    else:",
        "        yield x",
        "    return last",
    ]
    program = "program relu(x: f32[n], n) -> (y: f32[n]):\n    for i0 < n:\n        y[i0] = max(x[i0], 0.0)\n"
    group = "fused def g(p0: Object) -> Object:\n    return p0\n"
    return "\n".join([*lines, "", group, program, "storage s0: 16 bytes", ""])


REPEATS = {"f": Repeat(1, 2, LAYERS)}
SHOWN = {"f": frozenset({"a_3", "b_3"})}


def test_repeated_layers_parameters_and_notes_are_shown_once() -> None:
    found = outline(module(), REPEATS, SHOWN)
    assert [line.text for line in found.functions["f"]] == [
        "def f(",
        '    x: Tensor((n,), "f32"),',
        '    cache_0: Tensor((n, 4), "f32"),',
        "    ⋯ 9 more like these",
        ') -> Tensor((n,), "f32"):',
        "    # consumes cache_0, result 1 carries it on",
        "    ⋯ 9 more like these",
        "    # requires n <= 4",
        '    first: Tensor((n,), "f32") = negate(x)',
        "    ⋯ 3 times 2 lines like the next, with other names",
        '    a_3: Tensor((n,), "f32") = relu(b_2)',
        '    b_3: Tensor((n,), "f32") = add(a_3, a_3)',
        "    ⋯ 2 times 2 lines like these, with other names",
        '    last: Tensor((), "f32") = if b_5:',
        "        yield x",
        "    else:",
        "        yield x",
        "    return last",
    ]
    assert list(found.groups) == ["g"]
    assert list(found.programs) == ["relu"]
    assert found.programs["relu"].startswith("program relu(")


def test_without_repetition_all_lines_stay() -> None:
    lines = outline(module(), {}, {}).functions["f"]
    assert sum(line.text.startswith("    a_") for line in lines) == LAYERS


def test_long_lists_within_a_line() -> None:
    fields = ", ".join(f"y_{at}" for at in range(20))
    lines = outline(f"def f() -> Object:\n    t: Object = ({fields})\n    return t\n", {}, {}).functions["f"]
    assert Line("    t: Object = (y_0, ⋯ 19 more like these)") in lines


def test_a_comparison_marks_lines_and_words() -> None:
    before = outline(module(), REPEATS, SHOWN).functions["f"]
    after = outline(module("call_tir(sum_up"), REPEATS, SHOWN).functions["f"]
    changes = compare(before, after)
    marked = [(c.mark, c.text.strip()) for c in changes if c.mark in "+-"]
    assert [mark for mark, _ in marked] == ["-", "+"]
    assert marked[1][1].startswith("b_3: ")
    (added,) = (c for c in changes if c.mark == "+")
    assert "".join(word for word, changed in added.words if not changed).startswith("    b_3: Tensor((n,)")
    assert all(c.mark in " …" for c in compare(before, before))
    assert [c.text for c in unchanged(before)] == [line.text for line in before]


def test_words_that_only_came_in_need_no_old_line() -> None:
    before, after = [Line("    x: T = f(y)")], [Line("    x: T @ s0[0:16] = f(y)")]
    (change,) = compare(before, after)
    assert change.mark == "+"
    assert [word for word, changed in change.words if changed] == [" @ s0[0:16]"]


def test_lines_that_are_gone() -> None:
    before = [Line("    a: T = f(x)"), Line("    b: T = g(a)"), Line("    return b")]
    after = [Line("    b: T = fused(x)"), Line("    return b")]
    assert [(c.mark, c.text.strip().partition(":")[0]) for c in compare(before, after)] == [
        ("-", "a"),
        ("-", "b"),
        ("+", "b"),
        (" ", "return b"),
    ]
