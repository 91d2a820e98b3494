"""Puts the page together: everything that the template shows, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader
from markupsafe import Markup, escape

from ...compiler.ir.repeats import Repeat
from ..reader import Bundle
from .diff import Change, compare, unchanged
from .facts import Step, steps
from .graph import Picture, picture
from .kernels import Kernel, kernels
from .layer import Layer, layers
from .memory import Plan, plan
from .outline import Outline, outline

KINDS = {
    "elementwise": "reads the elements that it writes",
    "broadcast": "reads with fewer indices",
    "injective": "rearranges elements",
    "reduction": "combines many elements into one",
    "output fusible": "sums products: a matmul",
    "opaque": "anything else, or in place",
    "library": "a kernel written by hand",
}


@dataclass(frozen=True)
class StepView:
    """A pass: what it does, the calls of each function by what they call, and the text of each with what changed."""

    name: str
    about: str
    calls: Mapping[str, Mapping[str, int]]
    bytes: Mapping[str, int]
    programs: int
    storage: int
    texts: Mapping[str, list[Change]]
    added: Mapping[str, str]
    removed: list[str]

    def total(self, function: str) -> int:
        """All calls of a function."""
        return sum(self.calls[function].values())


@dataclass(frozen=True)
class FunctionView:
    """All that is shown of one function."""

    name: str
    values: Mapping[str, int]
    bounds: Mapping[str, tuple[int, int]]
    dispatches: int
    kernels: int
    read: int
    written: int
    operations: int
    layer: Layer | None
    picture: Picture | None
    plan: Plan


def page(bundle: Bundle, at: Mapping[str, int] | None = None) -> str:
    """The report as one HTML document. `at` gives variables values, see `steps`. Raises WebrelaxError."""
    ran = steps(bundle, at)
    found = layers(bundle, ran)
    listed = kernels(bundle, ran)
    shown = _steps(bundle, found)
    manifest = bundle.manifest
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            name=manifest["name"],
            model=manifest["model"],
            profile=bundle.profile,
            memory=manifest["memory"],
            download=download_bytes(manifest),
            functions=[_function(bundle, name, step, found.get(name), listed) for name, step in ran.items()],
            steps=shown,
            most_calls={name: max(s.total(name) for s in shown) for name in ran},
            kernels=listed,
            kinds=KINDS,
        )
    )


def download_bytes(manifest: Mapping[str, Any]) -> int:
    """What the page fetches: all files but the stored programs."""
    return sum(f["size"] for name, f in manifest["files"].items() if not name.startswith("program-"))


def _function(bundle: Bundle, name: str, step: Step, layer: Layer | None, listed: list[Kernel]) -> FunctionView:
    module, _ = bundle.program
    costs = [(k.uses[name].cost, k.uses[name].dispatches) for k in listed if name in k.uses]
    shown = frozenset(o.name for o in layer.operations) if layer else frozenset[str]()
    return FunctionView(
        name,
        step.values,
        bundle.functions[name].variables,
        len(step.dispatches),
        len({d.kernel for d in step.dispatches}),
        sum(c.read * count for c, count in costs if c),
        sum(c.written * count for c, count in costs if c),
        sum(c.operations * count for c, count in costs if c),
        layer,
        picture(layer) if layer else None,
        plan(module, step.function, shown),
    )


def _steps(bundle: Bundle, found: Mapping[str, Layer]) -> list[StepView]:
    shown = {name: frozenset(o.name for o in layer.operations) for name, layer in found.items()}
    views: list[StepView] = []
    before = Outline({}, {}, {})
    for name, text in bundle.stored["passes"].items():
        numbers = bundle.stored["steps"][name]
        repeats = {f: Repeat(*v["repeat"]) for f, v in numbers["functions"].items() if "repeat" in v}
        after = outline(text, repeats, shown)
        views.append(_step(name, numbers, before, after))
        before = after
    return views


def _step(name: str, numbers: Mapping[str, Any], before: Outline, after: Outline) -> StepView:
    functions = numbers["functions"]
    old, new = {**before.groups, **before.programs}, {**after.groups, **after.programs}
    words = ("operators", "libraries", "programs", "groups")
    return StepView(
        name,
        numbers["about"],
        {f: {word: v[word] for word in words} for f, v in functions.items()},
        {f: v["bytes"] for f, v in functions.items()},
        numbers["programs"],
        numbers["storage"],
        {
            f: compare(before.functions[f], lines) if f in before.functions else unchanged(lines)
            for f, lines in after.functions.items()
        },
        {n: text for n, text in new.items() if old.get(n) != text},
        [n for n in old if n not in new],
    )


def _environment() -> Environment:
    def source(name: str) -> str:
        return (files("webrelax.packaging") / "templates" / name).read_text(encoding="utf-8")

    environment = Environment(loader=FunctionLoader(source), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"size": size, "number": number, "prose": prose, "breaks": breaks}
    return environment


def prose(text: str) -> Markup:
    """Text in which `names` stand between backticks."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def breaks(name: str) -> Markup:
    """A long name that may be broken behind an underscore."""
    return Markup(str(escape(name)).replace("_", "_<wbr>"))


def size(count: float) -> str:
    """Bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.3g} {unit}"


def number(count: float) -> str:
    """A count for people: `12,345`, `1.23 million`."""
    for unit, factor in (("billion", 10**9), ("million", 10**6)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:,.0f}"
