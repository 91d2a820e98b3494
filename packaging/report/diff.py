"""What changed between two steps: whole lines, and the words of a line that stayed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from .outline import Line

ALIKE = 0.5


@dataclass(frozen=True)
class Change:
    """A line of a comparison: `mark` is " ", "+", "-" or "…" (left out); its words, those that changed marked."""

    mark: str
    words: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        return "".join(word for word, _ in self.words)


def compare(before: Sequence[Line], after: Sequence[Line]) -> list[Change]:
    """The lines of both, those that are only in one marked."""
    changes: list[Change] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            changes += [_plain(line) for line in after[c:d]]
        else:
            changes += _replaced(before[a:b], after[c:d])
    return changes


def unchanged(lines: Sequence[Line]) -> list[Change]:
    """The lines, of which nothing is marked."""
    return [_plain(line) for line in lines]


def _plain(line: Line, mark: str = " ") -> Change:
    return Change("…" if line.is_fold else mark, ((line.text, False),))


def _replaced(old: Sequence[Line], new: Sequence[Line]) -> Iterator[Change]:
    """Removed and added lines; one that kept its name is shown beside what it was, with the words that changed."""
    names = {_name(line): at for at, line in enumerate(old)}
    done = 0
    for line in new:
        at = names.get(_name(line), -1)
        if at < done or line.is_fold or old[at].is_fold:
            yield _plain(line, "+")
            continue
        yield from (_plain(removed, "-") for removed in old[done:at] if not removed.is_fold)
        yield from _words(old[at].text, line.text)
        done = at + 1
    yield from (_plain(removed, "-") for removed in old[done:] if not removed.is_fold)


def _words(old: str, new: str) -> Iterator[Change]:
    a, b = _tokens(old), _tokens(new)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    if matcher.ratio() < ALIKE:
        yield Change("-", ((old, False),))
        yield Change("+", ((new, False),))
        return
    removed: list[tuple[str, bool]] = []
    added: list[tuple[str, bool]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if i < j:
            removed.append(("".join(a[i:j]), tag != "equal"))
        if k < m:
            added.append(("".join(b[k:m]), tag != "equal"))
    # Where words only came in, the old line says nothing more.
    if any(changed for _, changed in removed):
        yield Change("-", tuple(removed))
    yield Change("+", tuple(added))


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|.", text)


def _name(line: Line) -> str:
    return line.text.strip().partition(":")[0]
