"""`webrelax inspect --html` in Chromium: it opens from a file, asks for nothing, and can be searched and switched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.cli import main
from webrelax.packaging.reader import Bundle, open_bundle

MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def report(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["inspect", str(site), "--html", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def bundle(site: Path) -> Bundle:
    return open_bundle(site)


@pytest.fixture
def opened(browser: Browser, report: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The report in a tab; a test fails if it asks the network for anything or writes to the console."""
    options = getattr(request, "param", {})
    context = browser.new_context(**options)
    tab = context.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("request", lambda asked: problems.append(asked.url) if asked.url != report.as_uri() else None)
    tab.goto(report.as_uri())
    yield tab
    context.close()
    assert problems == []


def test_size(report: Path) -> None:
    assert report.stat().st_size < MOST_BYTES


def test_what_it_shows(opened: Page, bundle: Bundle) -> None:
    expect(opened.locator("h1")).to_have_text(bundle.manifest["name"])
    expect(opened.locator("#pipeline .steps > li")).to_have_count(len(bundle.stored["passes"]))
    expect(opened.locator("#layer svg.layer:visible")).to_have_count(1)
    expect(opened.locator("#memory svg.chart:visible")).to_have_count(3)
    expect(opened.locator("details.kernel")).to_have_count(len(bundle.kernels))
    rows = opened.locator("#overview tbody tr")
    expect(rows).to_have_count(len(bundle.functions))
    reasons = opened.locator("#layer .reason:visible")
    assert reasons.count() > 8
    assert all(text.strip() for text in reasons.all_inner_texts())


def test_one_function_at_a_time(opened: Page) -> None:
    shown = opened.locator("#layer > div:visible code").first
    expect(shown).to_have_text("decode")
    names = set(opened.locator("details.kernel:visible .name").all_inner_texts())
    opened.get_by_role("radio", name="prefill").check(force=True)
    expect(shown).to_have_text("prefill")
    others = set(opened.locator("details.kernel:visible .name").all_inner_texts())
    assert others
    assert names != others


def test_a_pass_shows_what_it_changed(opened: Page) -> None:
    opened.locator("#pass-fuse_ops summary").first.click()
    text = opened.locator("#pass-fuse_ops .code:visible").first
    expect(text.locator("ins").first).to_be_visible()
    expect(text.locator("del").first).to_be_visible()
    expect(text.locator(".fold").first).to_contain_text("more like these")


def test_search_by_keyboard(opened: Page) -> None:
    opened.keyboard.press("/")
    box = opened.get_by_label("Find a kernel")
    expect(box).to_be_focused()
    opened.keyboard.type("norm")
    names = opened.locator("details.kernel:visible")
    expect(names.first).to_be_visible()
    assert all("norm" in text.lower() for text in (names.nth(at).text_content() or "" for at in range(names.count())))
    expect(opened.locator("#found")).to_have_text(re.compile(rf"^{names.count()} of \d+$"))
    opened.keyboard.type(" zzz")
    expect(names).to_have_count(0)
    box.fill("")
    expect(names.first).to_be_visible()


def test_a_kernel_opens_from_the_layer_and_is_colored(opened: Page) -> None:
    opened.locator("#layer .title a:visible").first.focus()
    opened.keyboard.press("Enter")
    kernel = opened.locator("details.kernel[open]")
    expect(kernel).to_have_count(1)
    expect(kernel.locator(".bindings tbody tr").first).to_be_visible()
    expect(kernel.locator(".wgsl .keyword").first).to_be_visible()
    assert "@compute" in kernel.locator(".wgsl").inner_text()


@pytest.mark.parametrize(
    "opened",
    [
        {"viewport": {"width": 360, "height": 740}},
        {"viewport": {"width": 768, "height": 900}, "color_scheme": "dark"},
        {"viewport": {"width": 1440, "height": 900}},
    ],
    indirect=True,
)
def test_nothing_is_wider_than_the_window(opened: Page) -> None:
    for details in opened.locator("details").all()[:6]:
        details.evaluate("element => { element.open = true; }")
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_printing_opens_nothing_and_hides_the_controls(opened: Page) -> None:
    opened.emulate_media(media="print")
    expect(opened.get_by_label("Find a kernel")).to_be_hidden()
    expect(opened.locator("nav")).to_be_hidden()
    expect(opened.locator("h1")).to_be_visible()


@pytest.mark.parametrize("opened", [{"java_script_enabled": False}], indirect=True)
def test_without_scripts_everything_is_there(opened: Page, bundle: Bundle) -> None:
    expect(opened.locator("#layer svg.layer:visible")).to_have_count(len(bundle.functions))
    expect(opened.locator("details.kernel:visible")).to_have_count(len(bundle.kernels))
    expect(opened.get_by_label("Find a kernel")).to_be_hidden()
