"""The report of a small model: its data, and the page made of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.cli import main
from webrelax.packaging.reader import Bundle
from webrelax.packaging.report import layers, page, steps
from webrelax.packaging.report.graph import picture
from webrelax.packaging.report.kernels import kernels
from webrelax.packaging.report.memory import plan
from webrelax.packaging.report.page import number, size

VOID = {"meta", "link", "input", "br", "wbr"}


class Checker(HTMLParser):
    """Checks that elements are closed in order, and collects ids, links and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [v for k, v in attrs if k == "id" and v]
        if tag == "a":
            self.links.append(given.get("href") or "")
        else:
            self.addresses += [v for k, v in attrs if k in ("src", "href", "action", "data") and v]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(bundle: Bundle) -> str:
    return page(bundle)


def test_the_page_is_whole_and_needs_nothing_else(html: str, bundle: Bundle) -> None:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert {link.removeprefix("#") for link in checker.links} <= set(checker.ids)
    assert checker.addresses == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", html)
    assert page(bundle) == html


def test_it_shows_every_pass_kernel_and_function(html: str, bundle: Bundle) -> None:
    for name in bundle.stored["passes"]:
        assert f'id="pass-{name}"' in html
    for at, kernel in enumerate(bundle.kernels):
        assert f'id="kernel-{at}"' in html
        assert kernel.text.splitlines()[-2].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in html
    for name in bundle.functions:
        assert f'aria-label="Memory of {name} after planning"' in html


def test_each_pass_says_what_it_does(bundle: Bundle) -> None:
    for name, step in bundle.stored["steps"].items():
        assert step["about"].endswith("."), f"{name} has no docstring whose first paragraph is a sentence"


def test_a_layer_accounts_for_its_operations(bundle: Bundle) -> None:
    ran = steps(bundle)
    found = layers(bundle, ran)
    assert set(found) == set(bundle.functions)
    for name, layer in found.items():
        assert layer.count == 2
        inside = [o for kernel in layer.kernels for o in kernel.operations]
        assert len(inside) == len(set(inside))
        assert set(inside) <= {o.name for o in layer.operations}
        assert {o.name for o in layer.operations if o.kind} <= set(inside)
        assert all(kernel.reasons for kernel in layer.kernels)
        # Two layers, what is before and after, and nothing else.
        assert 2 * len(layer.kernels) <= len(ran[name].dispatches) <= 2 * len(layer.kernels) + 6
        for at, kernel in enumerate(layer.kernels):
            assert at not in kernel.readers
            assert all(0 <= reader < len(layer.kernels) for reader in kernel.readers)


def test_the_graph_holds_its_parts(bundle: Bundle) -> None:
    for layer in layers(bundle, steps(bundle)).values():
        drawn = picture(layer)
        boxes = {box.number: box for box in drawn.boxes}
        assert list(boxes) == list(range(1, len(layer.kernels) + 1))
        for node in drawn.nodes:
            assert node.x >= -0.1
            assert node.x + node.width <= drawn.width + 0.1
            assert node.y + node.height <= drawn.height + 0.1
            if node.kernel:
                box = boxes[node.kernel]
                assert box.x < node.x
                assert node.x + node.width < box.x + box.width
                assert box.y < node.y
                assert node.y + node.height < box.y + box.height
        assert any(edge.is_memory for edge in drawn.edges)
        assert any(not edge.is_memory for edge in drawn.edges)


def test_the_memory_pictures_show_the_plan(bundle: Bundle) -> None:
    module, _ = bundle.program
    for function in module.functions.values():
        drawn = plan(module, function, frozenset())
        assert drawn.peak <= drawn.planned <= bundle.manifest["memory"]["storage"]
        assert drawn.planned <= drawn.unplanned
        assert len(drawn.before.blocks) == len(drawn.after.blocks) > 10
        for chart in (drawn.before, drawn.after):
            for block in chart.blocks:
                assert block.x >= 0
                assert block.x + block.width <= chart.width + 0.1
                assert block.y + block.height <= chart.height + 2
        # No two values overlap in the same place at the same time.
        for at, a in enumerate(drawn.after.blocks):
            for b in drawn.after.blocks[at + 1 :]:
                apart = a.x + a.width <= b.x + 0.01 or b.x + b.width <= a.x + 0.01
                assert apart or a.y + a.height <= b.y + 0.01 or b.y + b.height <= a.y + 0.01, (a.title, b.title)


def test_kernels_are_counted_as_they_run(bundle: Bundle) -> None:
    ran = steps(bundle)
    listed = kernels(bundle, ran)
    for name, step in ran.items():
        assert sum(k.uses[name].dispatches for k in listed if name in k.uses) == len(step.dispatches)
    for kernel, source in zip(listed, bundle.kernels, strict=True):
        assert [b.access.replace(" and ", "_") for b in kernel.bindings] == list(source.access)
        for use in kernel.uses.values():
            assert use.cost is not None
            assert use.cost.read > 0
            assert use.cost.written > 0
            # A kernel cannot need more than it binds.
            assert use.cost.read + use.cost.written <= 2 * sum(b.size for b in kernel.bindings)


def test_values_can_be_chosen(bundle: Bundle) -> None:
    assert steps(bundle)["prefill"].values == {"m": 32, "n": 16}
    chosen = steps(bundle, {"n": 3, "m": 20})
    assert chosen["prefill"].values == {"m": 20, "n": 3}
    assert chosen["decode"].values == {"m": 20}
    assert steps(bundle, {"m": 40})["prefill"].values == {"m": 40, "n": 8}
    fewer, more = ({k.name: k for k in kernels(bundle, steps(bundle, {"n": n, "m": 0}))} for n in (2, 4))
    for name, kernel in fewer.items():
        a, b = kernel.uses.get("prefill"), more[name].uses.get("prefill")
        if a and b and a.cost and b.cost:
            assert a.cost.operations <= b.cost.operations
    with pytest.raises(WebrelaxError, match="no function has a variable 'k'"):
        steps(bundle, {"k": 1})
    with pytest.raises(WebrelaxError, match="n = 17 is not between 1 and 16"):
        steps(bundle, {"n": 17})


def test_the_command_writes_the_page(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    assert main(["inspect", str(site), "--html", str(target), "--at", "n=2", "--at", "m=5"]) == 0
    assert str(target) in capsys.readouterr().out
    text = target.read_text(encoding="utf-8")
    assert "n = 2" in text
    assert "m = 5" in text
    assert main(["inspect", str(site), "--html", str(tmp_path / "missing" / "report.html")]) == 2
    assert main(["inspect", str(site), "--html", str(target), "--at", "n=99"]) == 2
    with pytest.raises(SystemExit):
        main(["inspect", str(site), "--at", "n"])


def test_inspect_lists_the_kernels_of_a_layer(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["inspect", str(site), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {k["function"] for k in report["layer"]} == set(report["functions"])
    assert all(k["reasons"] and k["kernel"] and k["operations"] for k in report["layer"])
    assert all([name for part in k["beside"] for name in part] == k["operations"] for k in report["layer"])
    assert main(["inspect", str(site)]) == 0
    text = capsys.readouterr().out
    lines = [line.strip() for line in text.splitlines()]
    for kernel in report["layer"]:
        assert " | ".join(map(", ".join, kernel["beside"])) in lines
        assert {f"- {reason}" for reason in kernel["reasons"]} <= set(lines)
    # The layer's result is what the next one reads.
    assert [k["leaves"] for k in report["layer"] if k["function"] == "decode"][-1]


def test_numbers_for_people() -> None:
    assert [size(n) for n in (0, 999, 1536, 150 * 1024, 3 << 20, 5 << 30)] == [
        "0 B",
        "999 B",
        "1.5 KiB",
        "150 KiB",
        "3 MiB",
        "5 GiB",
    ]
    assert [number(n) for n in (7, 12345, 1_234_567, 2_500_000_000)] == ["7", "12,345", "1.23 million", "2.5 billion"]
