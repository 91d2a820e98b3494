"""The picture of a layer: operators as nodes, kernels as boxes around them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from .layer import Layer, Operation
from .layered import Drawing, Point, Size, draw, longest_paths

NODE_HEIGHT = 42.0
PAD = 12.0
TITLE = 24.0
INNER_GAP = (16.0, 22.0)
OUTER_GAP = (26.0, 40.0)
MOST_READERS = 2


@dataclass(frozen=True)
class Node:
    """An operator, or a value from or to the outside; `x` and `y` are of its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    label: str
    detail: str
    kind: str
    title: str
    kernel: int = 0


@dataclass(frozen=True)
class Box:
    """A kernel: its number among those of the layer, from 1 on."""

    x: float
    y: float
    width: float
    height: float
    number: int
    title: str


@dataclass(frozen=True)
class Edge:
    """A value that is passed on: the path's SVG, and whether it goes through memory."""

    path: str
    is_memory: bool
    title: str


@dataclass(frozen=True)
class Picture:
    """Everything in one coordinate system, from (0, 0) on."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def picture(layer: Layer) -> Picture:
    """Draws a layer."""
    return _Picture(layer).make()


class _Picture:
    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        same = _other_names(layer)
        self.shown = [
            replace(o, reads=tuple(same.get(r, r) for r in o.reads)) for o in layer.operations if o.name not in same
        ]
        self.leaves = list(dict.fromkeys(same.get(name, name) for name in layer.leaves))
        self.operations = {o.name: o for o in self.shown}
        self.box_of = {o.name: f"op {o.name}" for o in self.shown}
        for number, kernel in enumerate(layer.kernels, 1):
            self.box_of |= dict.fromkeys(kernel.operations, f"kernel {number}")
        readers: dict[str, list[str]] = {}
        for operation in self.shown:
            for name in dict.fromkeys(operation.reads):
                readers.setdefault(name, []).append(operation.name)
        self.readers = readers

    def make(self) -> Picture:
        sizes, inner = self._boxes()
        ends = self._ends()
        sizes |= {pill: (_text_width(_pill_label(pill)), 26.0) for pill in self._pills()}
        outer = draw(sizes, [(self._box(a), self._box(b)) for a, b in ends], OUTER_GAP)
        places = {name: self._place(name, inner, outer, sizes) for name in self.operations}
        for pill in self._pills():
            (x, y), (width, height) = outer.centers[pill], sizes[pill]
            places[pill] = (x - width / 2, y - height / 2, width, height)
        nodes = [self._node(o, places[o.name]) for o in self.shown]
        nodes += [Node(*places[p], _pill_label(p), "", "outside", _pill_title(p)) for p in self._pills()]
        boxes = []
        for number, kernel in enumerate(self.layer.kernels, 1):
            (x, y), (width, height) = outer.centers[f"kernel {number}"], sizes[f"kernel {number}"]
            title = f"Kernel {number}: {kernel.name or 'none was needed'}"
            boxes.append(Box(x - width / 2, y - height / 2, width, height, number, title))
        ways = {name: self._way_in(name, inner, outer, sizes) for name in self.operations}
        edges = [self._edge(a, b, places, outer, ways.get(b, [])) for a, b in ends]
        return Picture(outer.width, outer.height, tuple(boxes), tuple(nodes), tuple(edges))

    def _pills(self) -> list[str]:
        """Values from outside that few operators read, and those that go there."""
        outside = [
            f"from {name}"
            for name, readers in self.readers.items()
            if name not in self.operations and _is_value(name) and len(readers) <= MOST_READERS
        ]
        return [*outside, *(f"to {name}" for name in self.leaves)]

    def _ends(self) -> list[tuple[str, str]]:
        """Who makes and who reads each value."""
        inner = [
            (name, reader) for name, readers in self.readers.items() if name in self.operations for reader in readers
        ]
        pills = set(self._pills())
        given = [(f"from {n}", r) for n, readers in self.readers.items() if f"from {n}" in pills for r in readers]
        return [*given, *inner, *((name, f"to {name}") for name in self.leaves)]

    def _box(self, name: str) -> str:
        return self.box_of.get(name, name)

    def _boxes(self) -> tuple[dict[str, Size], dict[str, Drawing]]:
        """The size of each box, and the drawing inside it."""
        members: dict[str, list[Operation]] = {}
        for operation in self.shown:
            members.setdefault(self._box(operation.name), []).append(operation)
        sizes, inner = {}, {}
        for box, operations in members.items():
            names = {o.name for o in operations}
            edges = [(r, o.name) for o in operations for r in o.reads if r in names]
            inner[box] = self._inside(operations, edges)
            frame = (2 * PAD, PAD + TITLE) if box.startswith("kernel ") else (0.0, 0.0)
            width = max(inner[box].width, 84.0 if frame[0] else 0.0)
            sizes[box] = (width + frame[0], inner[box].height + frame[1])
        return sizes, inner

    def _inside(self, operations: list[Operation], edges: list[tuple[str, str]]) -> Drawing:
        """The drawing inside a box. What enters it on the way to a lower row gets a port at the top."""
        rows = longest_paths([o.name for o in operations], edges)
        names = {o.name for o in operations}
        lower = [
            o.name for o in operations if rows[o.name] and any(self._is_drawn(r) for r in o.reads if r not in names)
        ]
        sizes = {o.name: _node_size(o) for o in operations}
        if lower:
            rows = {name: row + 1 for name, row in rows.items()}
            rows |= {_port(name): 0 for name in lower}
            sizes |= {_port(name): (10.0, 0.0) for name in lower}
        return draw(sizes, [*edges, *((_port(name), name) for name in lower)], INNER_GAP, rows)

    def _is_drawn(self, name: str) -> bool:
        return name in self.operations or f"from {name}" in self._pills()

    def _place(
        self, name: str, inner: Mapping[str, Drawing], outer: Drawing, sizes: Mapping[str, Size]
    ) -> tuple[float, float, float, float]:
        box = self._box(name)
        (x, y), (_, height) = outer.centers[box], sizes[box]
        in_x, in_y = inner[box].centers[name]
        node_width, node_height = _node_size(self.operations[name])
        top = TITLE if box.startswith("kernel ") else 0.0
        left = x - inner[box].width / 2
        return left + in_x - node_width / 2, y - height / 2 + top + in_y - node_height / 2, node_width, node_height

    def _way_in(
        self, name: str, inner: Mapping[str, Drawing], outer: Drawing, sizes: Mapping[str, Size]
    ) -> list[Point]:
        """The points that a value from another box passes inside this one."""
        box = self._box(name)
        port = _port(name)
        if port not in inner[box].centers:
            return []
        (x, y), (_, height) = outer.centers[box], sizes[box]
        left, top = x - inner[box].width / 2, y - height / 2 + TITLE
        return [(left + px, top + py) for px, py in (inner[box].centers[port], *inner[box].bends.get((port, name), ()))]

    def _node(self, operation: Operation, place: tuple[float, float, float, float]) -> Node:
        weights = [r for r in operation.reads if r.startswith("@")]
        lines = [f"{operation.name} = {operation.does}({', '.join(operation.reads)})", operation.type]
        if operation.kind:
            lines.append(f"kind: {operation.kind}")
        if weights:
            lines.append(f"reads weights: {', '.join(w[1:] for w in weights)}")
        number = self._box(operation.name).removeprefix("kernel ")
        kernel = int(number) if number.isdigit() else 0
        return Node(*place, operation.label, _short(operation.type), operation.kind, "\n".join(lines), kernel)

    def _edge(
        self,
        a: str,
        b: str,
        places: Mapping[str, tuple[float, float, float, float]],
        outer: Drawing,
        way_in: list[Point],
    ) -> Edge:
        start = (places[a][0] + places[a][2] / 2, places[a][1] + places[a][3])
        end = (places[b][0] + places[b][2] / 2, places[b][1])
        is_memory = self._box(a) != self._box(b)
        bends: list[Point] = []
        if is_memory:
            # Sideways only between the rows.
            leaves, enters = outer.spans[self._box(a)][1], outer.spans[self._box(b)][0]
            passed = outer.bends.get((self._box(a), self._box(b)), ())
            bends = [(start[0], leaves), *passed, ((way_in or [end])[0][0], enters), *way_in]
        title = f"{a.removeprefix('from ')}, read by {b.removeprefix('to ')}"
        return Edge(_curve([start, *bends, end]), is_memory, title)


def _port(name: str) -> str:
    return f"into {name}"


def _other_names(layer: Layer) -> dict[str, str]:
    """Values that no kernel makes, but that are another's field or name, with what they are of."""
    made = {name for kernel in layer.kernels for name in kernel.operations}
    names: dict[str, str] = {}
    for operation in layer.operations:
        values = [r for r in operation.reads if r in made or r in names]
        if operation.name not in made and len(operation.reads) == len(values) == 1:
            names[operation.name] = names.get(values[0], values[0])
    return names


def _curve(points: list[Point]) -> str:
    """A line through the points that leaves each downwards."""
    path = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (x, y), (u, v) in pairwise(points):
        if x == u:
            path.append(f"V{v:.0f}")
            continue
        bend = max(10.0, (v - y) / 2)
        path.append(f"C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v:.0f}")
    return "".join(path)


def _is_value(name: str) -> bool:
    """A bound value or a parameter: not a weight, and not a shape."""
    return re.fullmatch(r"[\w.]+", name) is not None


def _pill_label(pill: str) -> str:
    way, name = pill.split(" ", 1)
    return f"→ {name}" if way == "to" else name


def _pill_title(pill: str) -> str:
    way, name = pill.split(" ", 1)
    return f"{name}: read outside of this layer" if way == "to" else f"{name}: from outside of this layer"


def _node_size(operation: Operation) -> Size:
    return max(_text_width(operation.label), _text_width(_short(operation.type), 6.2)), NODE_HEIGHT


def _text_width(text: str, each: float = 7.4) -> float:
    return max(64.0, len(text) * each + 20)


def _short(annotation: str) -> str:
    """`f32[n, 576]` for a tensor's annotation."""
    if annotation.startswith("Tuple["):
        return f"{annotation.count('Tensor(')} results"
    match = re.fullmatch(r'Tensor\(\((.*?),?\), "(\w+)"\)', annotation)
    if match is None:
        return annotation if len(annotation) < 24 else annotation[:22] + "…"
    return f"{match[2]}[{match[1]}]"
