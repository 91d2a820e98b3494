"""A layered drawing of a directed acyclic graph: every edge goes down (Sugiyama's method, in its simplest form)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

SWEEPS = 16
EDGE_WIDTH = 10.0

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Drawing:
    """Centers of the nodes, top and bottom of their rows, the points that an edge passes on the way, and the size.

    Whoever draws an edge straight down to the end of its row, then through these points, crosses no node.
    """

    centers: Mapping[str, Point]
    spans: Mapping[str, tuple[float, float]]
    bends: Mapping[tuple[str, str], tuple[Point, ...]]
    width: float
    height: float


def draw(
    sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]], gap: Size, rows: Mapping[str, int] | None = None
) -> Drawing:
    """Draws the graph. `sizes` has width and height of each node, in an order that breaks ties; `gap` is the least
    distance to the right and below. `rows` may give the row of each node: each edge must go down.
    """
    unique = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    rows = dict(rows) if rows is not None else longest_paths(list(sizes), unique)
    # An edge over several rows passes each in a place of its own, so that it crosses no node.
    places: dict[str, Size] = dict(sizes)
    chains: dict[tuple[str, str], list[str]] = {}
    links: list[tuple[str, str]] = []
    for a, b in unique:
        chain = [a]
        for row in range(rows[a] + 1, rows[b]):
            chain.append(f"{a} > {b} in {row}")
            rows[chain[-1]] = row
            places[chain[-1]] = (EDGE_WIDTH, 0.0)
        chains[(a, b)] = chain[1:]
        links += zip(chain, [*chain[1:], b], strict=True)
    order = _ordered(places, rows, links)
    xs = _spread(order, places, links, gap[0])
    spans, height = _heights(order, places, gap[1])
    width = max((xs[n] + places[n][0] / 2 for n in places), default=0.0)
    return Drawing(
        {n: (xs[n], sum(spans[rows[n]]) / 2) for n in sizes},
        {n: spans[rows[n]] for n in sizes},
        {edge: tuple((xs[n], y) for n in chain for y in spans[rows[n]]) for edge, chain in chains.items()},
        width,
        height,
    )


def longest_paths(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """For each node the number of edges on the longest path to it; sources are moved down to their first reader."""
    before: dict[str, list[str]] = {n: [] for n in nodes}
    after: dict[str, list[str]] = {n: [] for n in nodes}
    for a, b in edges:
        before[b].append(a)
        after[a].append(b)
    rows: dict[str, int] = {}
    for node in TopologicalSorter(before).static_order():
        rows[node] = max((rows[p] + 1 for p in before[node]), default=0)
    for node in nodes:
        if not before[node] and after[node]:
            rows[node] = min(rows[s] for s in after[node]) - 1
    return rows


def _ordered(places: Mapping[str, Size], rows: Mapping[str, int], links: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The nodes of each row from left to right, by the mean position of their neighbors above and below."""
    order: list[list[str]] = [[] for _ in range(max(rows.values(), default=-1) + 1)]
    for node in places:
        order[rows[node]].append(node)
    above, below = _neighbors(places, links)
    best, fewest = [list(r) for r in order], _crossings(order, links)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in order if down else reversed(order):
            at = {n: i / max(1, len(r) - 1) if len(r) > 1 else 0.5 for r in order for i, n in enumerate(r)}
            beside = above if down else below
            row.sort(key=lambda n: sum(at[m] for m in beside[n]) / len(beside[n]) if beside[n] else at[n])
        crossings = _crossings(order, links)
        if crossings < fewest:
            best, fewest = [list(r) for r in order], crossings
    return best


def _neighbors(
    places: Iterable[str], links: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = {n: [] for n in places}
    below: dict[str, list[str]] = {n: [] for n in above}
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    return above, below


def _crossings(order: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    at = {n: (r, i) for r, row in enumerate(order) for i, n in enumerate(row)}
    ends = [(at[a][0], at[a][1], at[b][1]) for a, b in links]
    return sum(
        1
        for i, (row, a, b) in enumerate(ends)
        for other, c, d in ends[i + 1 :]
        if row == other and (a - c) * (b - d) < 0
    )


def _spread(
    order: Sequence[Sequence[str]], places: Mapping[str, Size], links: Sequence[tuple[str, str]], gap: float
) -> dict[str, float]:
    """The x of each node: near the mean of its neighbors, in its row's order and without touching."""
    above, below = _neighbors(places, links)
    xs: dict[str, float] = {}
    for row in order:
        x = 0.0
        for node in row:
            xs[node] = x + places[node][0] / 2
            x += places[node][0] + gap
    for sweep in range(2 * SWEEPS):
        for row in order if sweep % 2 == 0 else reversed(order):
            wanted = {}
            for node in row:
                beside = above[node] + below[node]
                wanted[node] = sum(xs[m] for m in beside) / len(beside) if beside else xs[node]
            _settle(row, wanted, places, gap, xs)
    left = min((xs[n] - places[n][0] / 2 for n in xs), default=0.0)
    return {n: x - left for n, x in xs.items()}


def _settle(
    row: Sequence[str], wanted: Mapping[str, float], places: Mapping[str, Size], gap: float, xs: dict[str, float]
) -> None:
    """Puts nodes as near to where they should be as their order allows; those that touch move as one."""
    blocks: list[tuple[list[str], float]] = []

    def offsets(nodes: Sequence[str]) -> list[float]:
        found, x = [], 0.0
        for node in nodes:
            found.append(x + places[node][0] / 2)
            x += places[node][0] + gap
        return found

    def start(nodes: Sequence[str]) -> float:
        return sum(wanted[n] - o for n, o in zip(nodes, offsets(nodes), strict=True)) / len(nodes)

    def width(nodes: Sequence[str]) -> float:
        return sum(places[n][0] + gap for n in nodes)

    for node in row:
        blocks.append(([node], start([node])))
        while len(blocks) > 1 and blocks[-2][1] + width(blocks[-2][0]) > blocks[-1][1]:
            last, _ = blocks.pop()
            merged = blocks.pop()[0] + last
            blocks.append((merged, start(merged)))
    for nodes, left in blocks:
        for node, offset in zip(nodes, offsets(nodes), strict=True):
            xs[node] = left + offset


def _heights(
    order: Sequence[Sequence[str]], places: Mapping[str, Size], gap: float
) -> tuple[list[tuple[float, float]], float]:
    """Top and bottom of each row, and the height of all."""
    spans, y = [], 0.0
    for row in order:
        tall = max((places[n][1] for n in row), default=0.0)
        spans.append((y, y + tall))
        y += tall + gap
    return spans, max(0.0, y - gap)
