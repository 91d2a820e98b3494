"""The text of a program as a person reads it: what repeats is shown once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...compiler.ir.repeats import Repeat, repeat_of

LONG_LIST = 8


@dataclass(frozen=True)
class Line:
    """A line of text; a fold stands for what is left out."""

    text: str
    is_fold: bool = False


@dataclass(frozen=True)
class Outline:
    """The parts of a module's text by name."""

    functions: Mapping[str, tuple[Line, ...]]
    groups: Mapping[str, str]
    programs: Mapping[str, str]


def outline(text: str, repeats: Mapping[str, Repeat], shown: Mapping[str, frozenset[str]]) -> Outline:
    """Takes the text of a module apart. Of a function's repeated layers, that with most of the `shown` names stays."""
    functions: dict[str, tuple[Line, ...]] = {}
    groups: dict[str, str] = {}
    programs: dict[str, str] = {}
    for part in re.split(r"\n(?=(?:fused )?def |program |storage )", text.strip("\n")):
        head = re.match(r"(fused def|def|program) ([\w.]+)\(", part)
        if head is None:
            continue
        word, name = head.groups()
        if word == "def":
            functions[name] = tuple(_function(part, repeats.get(name), shown.get(name, frozenset())))
        else:
            (programs if word == "program" else groups)[name] = part.rstrip("\n")
    return Outline(functions, groups, programs)


def _function(text: str, repeat: Repeat | None, shown: frozenset[str]) -> list[Line]:
    head, *body = text.rstrip("\n").split("\n")
    notes = [line for line in body if line.startswith("    #")]
    bindings = _bindings([line for line in body if not line.startswith("    #")])
    return [*_head(head), *fold([Line(n) for n in notes], _digits), *_body(bindings, repeat, shown)]


def _bindings(lines: Sequence[str]) -> list[list[str]]:
    """The lines of each binding; those of an `if` have several. The last is the return."""
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("     ") or line == "    else:":
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _body(bindings: Sequence[Sequence[str]], repeat: Repeat | None, shown: frozenset[str]) -> list[Line]:
    if repeat is None or repeat.end >= len(bindings):
        return [_line(line) for binding in bindings for line in binding]
    copies = [[bindings[at] for at in repeat.copy(number)] for number in range(repeat.count)]
    hits = [sum(_name(b[0]) in shown for b in copy) for copy in copies]
    best = hits.index(max(hits))
    before, after = best, repeat.count - 1 - best
    lines = [_line(line) for b in bindings[: repeat.start] for line in b]
    if before:
        lines.append(_fold(before, repeat.period, "the next"))
    lines += [_line(line) for b in copies[best] for line in b]
    if after:
        lines.append(_fold(after, repeat.period, "these"))
    return lines + [_line(line) for b in bindings[repeat.end :] for line in b]


def _fold(copies: int, period: int, like: str) -> Line:
    times = f"{copies} times" if copies > 1 else "once"
    return Line(f"    ⋯ {times} {period} lines like {like}, with other names", True)


def _name(line: str) -> str:
    return line.strip().partition(":")[0]


def _head(line: str) -> list[Line]:
    """A function's signature, one parameter a line."""
    start = line.index("(") + 1
    end = _closing(line, start)
    params = [Line(f"    {p},") for p in _split(line[start:end])]
    return [Line(line[:start]), *fold(params, _named_digits), _line(line[end:])]


def fold(lines: Sequence[Line], key: Callable[[str], str]) -> list[Line]:
    """The lines, of those that repeat up to their keys the first copy only."""
    repeat = repeat_of([key(line.text) for line in lines])
    if repeat is None or repeat.end - repeat.start < LONG_LIST:
        return list(lines)
    left_out = (repeat.count - 1) * repeat.period
    indent = re.match(r" *", lines[repeat.start].text)
    marker = Line(f"{indent[0] if indent else ''}⋯ {left_out} more like these", True)
    first = lines[: repeat.start + repeat.period]
    return [*first, marker, *fold(lines[repeat.end :], key)]


def _line(text: str) -> Line:
    """A line whose long lists are shortened."""
    out, at = [], 0
    while at < len(text):
        out.append(text[at])
        if text[at] in "([":
            end = _closing(text, at + 1)
            items = _split(text[at + 1 : end])
            if len(items) > LONG_LIST:
                out += [_shortened(items), text[end : end + 1]]
                at = end
        at += 1
    return Line("".join(out))


def _shortened(items: Sequence[str]) -> str:
    folded = fold([Line(item) for item in items], _digits)
    return ", ".join(line.text for line in folded)


def _closing(text: str, start: int) -> int:
    """The position of the bracket that closes what was opened before `start`."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth == 0:
            return at
    return len(text)


def _split(text: str) -> list[str]:
    """The items of a list, split at its own commas."""
    items, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*items, last] if last else items


def _digits(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _named_digits(text: str) -> str:
    """A parameter without the numbers of its name."""
    name, colon, kind = text.partition(": ")
    return _digits(name) + colon + kind
