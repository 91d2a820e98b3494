"""The memory plan as a picture: bytes upwards, program time to the right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from ...compiler.ir import Binding, CallLibrary, CallTIR, Function, Module, Place
from ...compiler.ir.liveness import Lives, TensorKey, tensor_lives
from ...compiler.symbolic import upper_bound

WIDTH = 1000.0
HEIGHT = 240.0
LANE_GAP = 18.0
LABEL_WIDTH = 46.0


@dataclass(frozen=True)
class Block:
    """A tensor from its first write to its last read. `label` is empty where there is no room for it."""

    x: float
    y: float
    width: float
    height: float
    hue: int
    label: str
    title: str


@dataclass(frozen=True)
class Lane:
    """A storage: its top edge and height, its bytes, and those that the function uses, which are drawn."""

    name: str
    y: float
    height: float
    size: int
    used: int


@dataclass(frozen=True)
class Chart:
    """One picture. `steps` are the x of the calls with their names; `shadow` is an SVG path of memory held idly."""

    width: float
    height: float
    blocks: tuple[Block, ...]
    lanes: tuple[Lane, ...]
    steps: tuple[tuple[float, str], ...] = ()
    shadow: str = ""


@dataclass(frozen=True)
class Plan:
    """The memory of one function, at the bounds: bytes of its tensors, the most that live at once, and of the plan.

    `before` gives each tensor memory of its own, `after` is the plan, `layer` a closer look at one layer of it.
    """

    unplanned: int
    peak: int
    planned: int
    before: Chart
    after: Chart
    layer: Chart | None


@dataclass(frozen=True)
class _Tensor:
    key: TensorKey
    size: int
    place: Place
    born: int
    dies: int

    @property
    def title(self) -> str:
        return f"{self.key[0]}: {self.size:,} bytes at {self.place}, lives for calls {self.born} to {self.dies}"


def plan(module: Module, function: Function, shown: frozenset[str]) -> Plan:
    """Draws the plan of a function; `shown` are names of the layer to look at closely."""
    lives = tensor_lives(module, function)
    calls = [b for b in lives.order if isinstance(b.value, CallTIR | CallLibrary)]
    tensors = _tensors(lives, calls)
    inner = [t for t in tensors if t.place.storage in module.storages]
    used = {t.place.storage for t in inner}
    sizes = {name: upper_bound(size) or 0 for name, size in module.storages.items() if name in used}
    alive = [sum(t.size for t in inner if t.born <= at <= t.dies) for at in range(len(calls))]
    names = [b.name.name for b in calls]
    times = [at for at, name in enumerate(names) if name in shown]
    window = range(min(times), max(times) + 1) if times else range(0)
    everything = range(len(calls))
    return Plan(
        sum(t.size for t in inner),
        max(alive, default=0),
        sum(max((t.place.offset + t.size for t in inner if t.place.storage == name), default=0) for name in sizes),
        _before(inner, everything),
        _after(inner, sizes, everything, (), 1.0),
        _after(inner, sizes, window, names, 2.0) if len(window) < len(calls) else None,
    )


def _tensors(lives: Lives, calls: Sequence[Binding]) -> list[_Tensor]:
    """The tensors with their places, in the order of their births; time counts calls."""
    when = {b.name.name: at for at, b in enumerate(calls)}
    time: list[int] = []
    found: list[_Tensor] = []
    for binding in lives.order:
        time.append(when.get(binding.name.name, time[-1] if time else 0))
    time.append(len(calls))
    for binding in lives.order:
        keys = sorted(key for key in lives.sizes if key[0] == binding.name.name)
        for key, place in zip(keys, binding.places, strict=False):
            size = upper_bound(place.size) or 0
            found.append(_Tensor(key, size, place, time[lives.born[key]], time[lives.dies[key]]))
    return found


def _before(tensors: Iterable[_Tensor], time: range) -> Chart:
    """Each tensor on top of those that were born before it: nothing is reused."""
    tensors = list(tensors)
    total = sum(t.size for t in tensors) or 1
    scale, step = HEIGHT / total, WIDTH / max(1, len(time))
    blocks, y, shadow = [], HEIGHT, [f"M{WIDTH:.1f} {HEIGHT:.1f}"]
    corners = []
    for tensor in tensors:
        height = tensor.size * scale
        y -= height
        x, end = tensor.born * step, (tensor.dies + 1) * step
        tall = max(1.5, height)
        blocks.append(Block(x, y, min(end, WIDTH) - x, tall, _hue(tensor), "", tensor.title))
        corners += [f"L{x:.1f} {y + height:.2f}", f"L{x:.1f} {y:.2f}"]
    shadow += [f"L0 {HEIGHT:.1f}", *corners, f"L{WIDTH:.1f} {max(0.0, y):.2f}Z"]
    lane = Lane("", 0.0, HEIGHT, total, total)
    return Chart(WIDTH, HEIGHT, tuple(blocks), (lane,), (), "".join(shadow))


def _after(
    tensors: Iterable[_Tensor], sizes: Mapping[str, int], time: range, names: Sequence[str], zoom: float
) -> Chart:
    """The storages below each other. Heights are compressed, so that small tensors can be seen beside large ones."""
    everything = list(tensors)
    tensors = [t for t in everything if t.born < time.stop and t.dies >= time.start]
    step = WIDTH / max(1, len(time))
    lanes, blocks, top = [], [], 0.0
    for name, size in sizes.items():
        used = max(t.place.offset + t.size for t in everything if t.place.storage == name)
        own = [t for t in tensors if t.place.storage == name]
        heights = _heights(own, used, zoom)
        lane_height = max(26.0, heights[used])
        lanes.append(Lane(name, top, lane_height, size, used))
        for t in own:
            x = max(0.0, (t.born - time.start) * step)
            end = min(WIDTH, (t.dies + 1 - time.start) * step)
            y, bottom = heights[t.place.offset], heights[t.place.offset + t.size]
            room = end - x > max(LABEL_WIDTH, 6.4 * len(t.key[0]) + 8) and bottom - y > 12
            label = t.key[0] if names and room else ""
            blocks.append(Block(x, top + y, end - x, bottom - y, _hue(t), label, t.title))
        top += lane_height + LANE_GAP
    steps = tuple(((at - time.start + 0.5) * step, names[at]) for at in time) if names else ()
    return Chart(WIDTH, max(0.0, top - LANE_GAP), tuple(blocks), tuple(lanes), steps)


def _heights(tensors: Iterable[_Tensor], size: int, zoom: float) -> dict[int, float]:
    """The y of each offset where a tensor begins or ends: what lies between two of them grows with its logarithm."""
    offsets = sorted({0, size}.union(*((t.place.offset, t.place.offset + t.size) for t in tensors)))
    heights, y = {0: 0.0}, 0.0
    for low, high in pairwise(offsets):
        y += zoom * max(3.0, 2.2 * (log2(high - low) - 7))
        heights[high] = y
    return heights


def _hue(tensor: _Tensor) -> int:
    """One of six colors, which neighbors in time do not share."""
    return tensor.born % 6
