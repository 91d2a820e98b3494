"""The chat page over a toy model, which answers in a moment: what a visitor sees and does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from webrelax.packaging.serve import serving

from .chromium import new_context
from .conftest import opened
from .page_actions import ask, open_page
from .toy import ANSWER, NAME, build_toy_site

FIRST_PARAGRAPH = ANSWER.split("\n\n")[0]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(build_toy_site(tmp_path_factory.mktemp("toy"), context=2048)) as address:
        yield address


@pytest.fixture(scope="module")
def slow_toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model that takes its time for a long answer, with two names."""
    site = build_toy_site(
        tmp_path_factory.mktemp("slow"), answer="word " * 400, context=2048, labour=20_000, names=("Slow-1", "Slow-2")
    )
    with serving(site) as address:
        yield address


def test_loads_answers_and_tells_what_runs(page: Page, toy: str) -> None:
    failed: list[str] = []

    def watch(response: Response) -> None:
        if response.status >= 400 or not response.url.startswith((toy, "data:")):
            failed.append(f"{response.status} {response.url}")

    page.on("response", watch)
    open_page(page, toy)
    expect(page.locator("#model-name")).to_have_text(NAME)
    expect(page.locator("#device")).to_contain_text("swiftshader · f32")
    ask(page, "Why is there a rainbow?")
    answer = page.locator(".message.assistant")
    expect(answer.locator("p").first).to_have_text(FIRST_PARAGRAPH)
    expect(answer.locator("pre")).to_have_text("red     42.4°\nviolet  40.7°")
    expect(answer.locator("strong")).to_have_text(["red", "blue"])
    expect(page.locator("#stats")).to_contain_text("tokens/s")
    expect(page.locator("#messages")).to_have_attribute("aria-busy", "false")
    assert failed == []


def test_a_second_turn_continues_from_the_cache(page: Page, toy: str) -> None:
    open_page(page, toy)
    found = page.evaluate("""async () => {
      const messages = [{ role: "user", content: "One" }];
      const first = await engine.chat.completions.create({ messages, temperature: 0 });
      messages.push(first.choices[0].message, { role: "user", content: "Two" });
      const second = await engine.chat.completions.create({ messages, temperature: 0 });
      return [first, second].map(({ choices: [{ message }], usage }) => [message.content, usage]);
    }""")
    (first, usage), (second, later) = found
    assert first == second == ANSWER
    assert later["prompt_tokens_details"]["cached_tokens"] == usage["total_tokens"]


def test_a_reload_downloads_no_file_again(page: Page, toy: str) -> None:
    open_page(page, toy)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url.rsplit("/", 1)[1]))
    page.reload()
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    assert [name for name in requested if name.endswith((".bin", "kernels-f32.json", "tokenizer.json"))] == []
    assert page.evaluate("engine.info.load.downloaded_bytes") == 0
    ask(page, "And now?")


def test_stop_in_the_middle_and_go_on(page: Page, slow_toy: str) -> None:
    open_page(page, slow_toy)
    for key, answers in (("button", 1), ("Escape", 2)):
        page.fill("#prompt", "Tell me everything")
        page.keyboard.press("Enter")
        expect(page.locator(".message.assistant .body").nth(answers - 1)).to_contain_text("word word")
        expect(page.locator("#send")).to_be_hidden()
        if key == "button":
            page.click("#stop")
        else:
            page.keyboard.press(key)
        expect(page.locator("#status")).to_have_text("Stopped")
        expect(page.locator("#stop")).to_be_hidden()
        text = page.locator(".message.assistant .body").nth(answers - 1).inner_text()
        page.wait_for_timeout(200)
        assert page.locator(".message.assistant .body").nth(answers - 1).inner_text() == text
        assert 0 < len(text) < 2000
    page.click("#settings-button")
    page.fill("#max_tokens", "10")
    page.keyboard.press("Escape")
    ask(page, "Go on", answers=3)
    expect(page.locator(".message.assistant").nth(2)).to_contain_text("Cut at the longest answer of 10 tokens")


def test_a_new_conversation_even_in_the_middle_of_an_answer(page: Page, slow_toy: str) -> None:
    open_page(page, slow_toy)
    page.click("#examples button >> nth=0")
    expect(page.locator(".message.assistant .body")).to_contain_text("word")
    page.click("#new")
    expect(page.locator(".message")).to_have_count(0)
    expect(page.locator("#hero")).to_be_visible()
    expect(page.locator("#status")).to_have_text("Stopped")
    page.fill("#prompt", "Again")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant .body")).to_contain_text("word")
    page.keyboard.press("Escape")
    expect(page.locator("#error")).to_be_hidden()


def test_models_are_picked_by_name(page: Page, slow_toy: str) -> None:
    open_page(page, slow_toy + "?model=Slow-2")
    assert page.evaluate("engine.info.model") == "Slow-2"
    page.select_option("#model", "Slow-1")
    page.wait_for_url("**/?model=Slow-1&target=webgpu")
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    assert page.evaluate("engine.info.model") == "Slow-1"
    assert page.evaluate("engine.info.load.downloaded_bytes") == 0  # equal files are stored once, whatever their name


def test_text_is_never_markup(page: Page, tmp_path: Path) -> None:
    text = "<img src=x onerror=alert(1)> <b>not bold</b>\n\n```\n<script>alert(2)</script>\n```"
    with serving(build_toy_site(tmp_path / "site", answer=text)) as address:
        open_page(page, address)
        ask(page, "<i>question</i>")
        expect(page.locator(".message.user")).to_have_text("<i>question</i>")
        expect(page.locator(".message.assistant p")).to_have_text("<img src=x onerror=alert(1)> <b>not bold</b>")
        assert page.locator(".message :is(img, b, i, script)").count() == 0


def test_works_by_keyboard(page: Page, toy: str) -> None:
    open_page(page, toy)
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    expect(page.locator("#prompt")).to_have_value("one\ntwo")
    page.keyboard.press("Enter")
    expect(page.locator(".message.user")).to_have_text("one\ntwo")
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    expect(page.locator("#prompt")).to_be_focused()
    page.keyboard.press("Enter")  # an empty message is none
    expect(page.locator(".message.user")).to_have_count(1)
    page.locator("#settings-button").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()


def test_settings_are_kept(page: Page, toy: str) -> None:
    open_page(page, toy)
    page.click("#settings-button")
    page.fill("#temperature", "0")
    page.fill("#system", "Be brief.")
    page.reload()
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    page.click("#settings-button")
    expect(page.locator("#temperature-value")).to_have_text("0.00")
    expect(page.locator("#system")).to_have_value("Be brief.")
    expect(page.locator("#facts")).to_contain_text("Dispatches a token")
    page.click("#defaults")
    expect(page.locator("#temperature-value")).to_have_text("0.30")
    expect(page.locator("#system")).to_have_value("")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(320, 568), (390, 844), (1280, 800)])
def test_nothing_overflows_or_jumps(browser: Browser, toy: str, scheme: str, width: int, height: int) -> None:
    with opened(browser, viewport={"width": width, "height": height}, color_scheme=scheme) as page:
        page.add_init_script("""
          window.shift = 0;
          new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.shift += entry.value; })
            .observe({ type: "layout-shift", buffered: true });
        """)
        open_page(page, toy)
        page.wait_for_timeout(100)
        assert page.evaluate("window.shift") < 0.01
        ask(page, "A question " * 20)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth")
        box = page.locator("#prompt").bounding_box()
        assert box
        assert box["y"] + box["height"] <= height


@pytest.mark.parametrize("names", [1, 2])
def test_a_long_model_name_fits_a_phone(browser: Browser, tmp_path: Path, names: int) -> None:
    long = tuple(f"An-Instructed-Model-Of-135M-{at}.Q4_1" for at in range(names))
    context = new_context(browser, viewport={"width": 320, "height": 568})
    page = context.new_page()
    with serving(build_toy_site(tmp_path / "site", names=long)) as address:
        open_page(page, address)
        button = page.locator("#settings-button").bounding_box()
    context.close()
    assert button
    assert button["x"] + button["width"] <= 320
