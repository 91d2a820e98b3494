"""What the turns come to: medians, ratios to the peers, bars, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

OURS = "webrelax"
FIGURES = ("prefill", "decode")
# Of llama.cpp's speed outside of a browser; how much faster two threads are than one.
NATIVE, SCALING = 0.55, 1.7

Kind = Literal["ours", "browser", "native"]


@dataclass(frozen=True)
class Turn:
    """One answer. Speeds in tokens/s: of the prompt up to the first token, and of the tokens after that one."""

    prefill: float
    decode: float
    ids: tuple[int | None, ...]

    @classmethod
    def of(cls, prompt: int, first: float, last: float, ids: Sequence[int | None]) -> Turn:
        """From the seconds from the request to the first and to the last token."""
        return cls(prompt / first, (len(ids) - 1) / (last - first), tuple(ids))


@dataclass
class Side:
    """One engine: its turns by the number of threads, and the seconds from a reload of its page to the first token."""

    name: str
    kind: Kind
    version: str = ""
    turns: dict[int, list[Turn]] = field(default_factory=dict)
    reloads: dict[int, list[float]] = field(default_factory=dict)

    def speed(self, figure: str, threads: int) -> float:
        return float(statistics.median(getattr(turn, figure) for turn in self.turns[threads]))

    def reload(self, threads: int) -> float:
        return statistics.median(self.reloads[threads])

    def agreement(self, other: Side, threads: int) -> int | None:
        """How many of its first tokens are the other's; None where one of them tells no ids."""
        mine, theirs = self.turns[threads][-1].ids, other.turns[threads][-1].ids
        if None in mine or None in theirs:
            return None
        same = [a == b for a, b in zip(mine, theirs, strict=False)]
        return same.index(False) if False in same else len(same)


@dataclass(frozen=True)
class Bar:
    """A figure of ours against another: `limit` is the least ratio of the two, or the largest where less is better."""

    name: str
    unit: str
    ours: float
    against: str
    theirs: float
    limit: float
    least: bool = True

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def passed(self) -> bool:
        return self.ratio >= self.limit if self.least else self.ratio <= self.limit


def threads_text(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def bars(sides: Sequence[Side], limits: Mapping[str, float]) -> Iterator[Bar]:
    """`limits` are the least ratios to the best peer in a browser, by figure."""
    ours = next(side for side in sides if side.kind == "ours")
    browser = [side for side in sides if side.kind == "browser"]
    for threads in ours.turns:
        for figure in FIGURES:
            speed = ours.speed(figure, threads)
            name = f"{figure}, {threads_text(threads)}"
            if browser:
                best = max(browser, key=lambda side: side.speed(figure, threads))
                yield Bar(name, "tokens/s", speed, best.name, best.speed(figure, threads), limits[figure])
            for side in sides:
                if side.kind == "native":
                    yield Bar(name, "tokens/s", speed, side.name, side.speed(figure, threads), NATIVE)
    if {1, 2} <= ours.turns.keys():
        for figure in FIGURES:
            one, two = (ours.speed(figure, threads) for threads in (1, 2))
            yield Bar(f"{figure}, 2 threads", "tokens/s", two, "1 thread", one, SCALING)
    for threads in ours.reloads:
        if peers := [side for side in browser if threads in side.reloads]:
            best = min(peers, key=lambda side: side.reload(threads))
            name = f"first token after a reload, {threads_text(threads)}"
            yield Bar(name, "s", ours.reload(threads), best.name, best.reload(threads), 1.0, least=False)


def speed_table(sides: Sequence[Side]) -> Iterator[str]:
    """Medians, and the scaling from the fewest threads to the most."""
    counts = list(sides[0].turns)
    groups = [threads_text(threads) for threads in counts]
    if len(counts) > 1:
        groups.append(f"{counts[0]} -> {counts[-1]}")
    yield f"{'':<30}" + "".join(f"{group:>20}" for group in groups)
    yield f"{'tokens/s':<30}" + "".join(f"{figure:>10}" for figure in FIGURES) * len(groups)
    for side in sides:
        cells = [f"{side.speed(figure, threads):.1f}" for threads in counts for figure in FIGURES]
        if len(counts) > 1:
            cells += [f"{side.speed(figure, counts[-1]) / side.speed(figure, counts[0]):.2f} x" for figure in FIGURES]
        yield f"{f'{side.name} {side.version}':<30}" + "".join(f"{cell:>10}" for cell in cells)


def reload_table(sides: Sequence[Side]) -> Iterator[str]:
    measured = [side for side in sides if side.reloads]
    if measured:
        counts = list(measured[0].reloads)
        yield f"{'s to a token after a reload':<30}" + "".join(f"{threads_text(threads):>20}" for threads in counts)
        for side in measured:
            yield f"{side.name:<30}" + "".join(f"{side.reload(threads):>20.2f}" for threads in counts)


def bar_table(found: Sequence[Bar]) -> Iterator[str]:
    yield f"{'':<44}{OURS:>10}  {'against':<18}{'':>10}{'ratio':>8}{'limit':>8}"
    for bar in found:
        limit = f"{'>=' if bar.least else '<='}{bar.limit:g}"
        verdict = "ok" if bar.passed else "MISSED"
        yield (
            f"{f'{bar.name} [{bar.unit}]':<44}{bar.ours:>10.4g}  {bar.against:<18}{bar.theirs:>10.4g}"
            f"{bar.ratio:>8.2f}{limit:>8}  {verdict}"
        )


def record(side: Side, ours: Side) -> dict[str, Any]:
    """A side as JSON: medians and all turns, by threads."""
    return {
        "name": side.name,
        "kind": side.kind,
        "version": side.version,
        "threads": {
            str(threads): {
                **{figure: side.speed(figure, threads) for figure in FIGURES},
                **{f"{figure}_turns": [getattr(turn, figure) for turn in turns] for figure in FIGURES},
                "same_tokens_as_ours": side.agreement(ours, threads),
                "reload_s": side.reload(threads) if threads in side.reloads else None,
                "reload_s_turns": side.reloads.get(threads, []),
            }
            for threads, turns in side.turns.items()
        },
    }
