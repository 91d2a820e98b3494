"""A real model in the page: its numbers against an independent reference and against the NumPy interpreter.

Everything goes through the page or its public entry, as a user does. Chromium runs the kernels on the CPU, a token or
so a second: one load of the page serves all tests, and none computes more tokens than it has to.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.cli import main
from webrelax.packaging.engine import Engine, InterpreterBackend
from webrelax.packaging.reader import open_bundle
from webrelax.packaging.serve import serving

from .conftest import opened

pytestmark = pytest.mark.slow

TOLERANCE = 0.02
ORACLE = json.loads((Path(__file__).parents[1] / "tests/data/oracle/smollm2.json").read_text("utf-8"))
PROMPTS = ORACLE["prompts"]
MINUTES = 60_000.0
CONTEXT = 32

# Keeps every state of the progress that the page shows.
WATCH_PROGRESS = """
window.progress = [];
const states = ["#progress-text", "#progress-percent"];
new MutationObserver(() => {
  const [text, percent] = states.map((id) => document.querySelector(id)?.textContent ?? "");
  const last = progress.at(-1);
  if (percent && (last?.[0] !== text || last?.[1] !== parseInt(percent))) progress.push([text, parseInt(percent)]);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


def open_page(page: Page, address: str) -> None:
    """Waits for the model to be ready, as `engine` in the page."""
    page.set_default_timeout(10 * MINUTES)
    page.goto(address)
    expect(page.locator("#status")).to_have_text("Ready", timeout=10 * MINUTES)


@pytest.fixture(scope="module")
def loaded(shared_page: Page, url: str) -> Page:
    shared_page.add_init_script(WATCH_PROGRESS)
    open_page(shared_page, url)
    return shared_page


@pytest.fixture(scope="module")
def interpreter(site: Path) -> Engine:
    bundle = open_bundle(site)
    return Engine(bundle, InterpreterBackend(bundle))


def complete(page: Page, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(
        "(options) => engine.completions.create(options)", {"temperature": 0, "logprobs": 20, **options}
    )
    return found


def tokens(count: int) -> list[int]:
    """A prompt of ordinary words."""
    ids: list[int] = [token for prompt in PROMPTS for token in prompt["ids"]]
    return (ids * (count // len(ids) + 1))[:count]


def assert_close(answer: dict[str, Any], expected: Any) -> None:
    """The 20 largest logits at the end of the prompt are the expected ones."""
    found = answer["choices"][0]["logprobs"]["top_logits"]
    assert len(found) == 20
    assert max(abs(logit - float(expected[token])) for token, logit in found) < TOLERANCE


def greedy(engine: Engine, logits: Any, count: int) -> list[int]:
    """The tokens that the interpreter would say from there."""
    said: list[int] = []
    while len(said) < count:
        said.append(int(np.argmax(logits)))
        logits = engine.decode(said[-1]) if len(said) < count else None
    return said


def test_shows_how_far_the_loading_is(loaded: Page) -> None:
    seen = loaded.evaluate("progress")
    shares = [percent for _, percent in seen]
    assert shares == sorted(shares)
    assert shares[0] < 20
    assert len(set(shares)) > 10
    assert any(text.startswith("Downloading: ") and text.endswith("MB of 99 MB") for text, _ in seen)
    assert any(text.startswith("Compiling kernels: ") for text, _ in seen)
    info = loaded.evaluate("engine.info")
    assert info["load"]["downloaded_bytes"] > 90e6
    assert info["profile"] == "f32"
    expect(loaded.locator("#device")).to_contain_text("swiftshader · f32")


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt["text"][:20])
def test_logits_and_greedy_tokens_of_the_reference(loaded: Page, prompt: dict[str, Any]) -> None:
    sure = next((at for at, margin in enumerate(prompt["margins"]) if margin < TOLERANCE), len(prompt["margins"]))
    answer = complete(loaded, prompt=prompt["text"], max_tokens=max(sure, 1), logprobs=100)
    choice = answer["choices"][0]
    assert choice["prompt_token_ids"] == prompt["ids"]
    logits = dict(choice["logprobs"]["top_logits"])
    reference = zip(prompt["top20"], prompt["logits"], strict=True)
    assert max(abs(logits[token] - logit) for token, logit in reference) < TOLERANCE
    assert choice["token_ids"][:sure] == prompt["greedy"][:sure]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
def test_prompts_of_many_lengths_agree_with_the_interpreter(loaded: Page, interpreter: Engine, count: int) -> None:
    """64 is a tile of the matrix products; 300 tokens are several chunks."""
    prompt = tokens(count)
    loaded.evaluate("engine.reset()")
    answer = complete(loaded, prompt=prompt, max_tokens=1)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    # Each prompt begins with the one before: the interpreter goes on from its cache, in other chunks than the page.
    assert_close(answer, interpreter.prefill(prompt))


def test_a_chat_that_is_stopped_goes_on_from_the_cache(loaded: Page, interpreter: Engine) -> None:
    """By the page's own controls; then the same conversation by the interface, against the interpreter."""
    answers = loaded.locator(".message.assistant .body")
    loaded.click("#settings-button")
    loaded.fill("#temperature", "0")
    loaded.keyboard.press("Escape")
    loaded.fill("#prompt", "Hi")
    loaded.keyboard.press("Enter")
    expect(loaded.locator("#status")).to_have_text("Reading")
    expect(answers).to_contain_text(re.compile(r"\w\W+\w"), timeout=10 * MINUTES)
    expect(loaded.locator("#stats")).to_contain_text("tokens/s")
    loaded.click("#stop")
    expect(loaded.locator("#status")).to_have_text("Stopped", timeout=10 * MINUTES)
    expect(loaded.locator(".message.assistant .note")).to_have_text("Stopped.")
    said = answers.inner_text()
    assert said
    loaded.click("#settings-button")
    loaded.fill("#max_tokens", "3")
    loaded.keyboard.press("Escape")
    loaded.fill("#prompt", "And now?")
    loaded.keyboard.press("Enter")
    expect(loaded.locator("#status")).to_have_text("Ready", timeout=10 * MINUTES)
    expect(answers).to_have_count(2)
    expect(loaded.locator(".message.assistant .note").nth(1)).to_contain_text("Cut at the longest answer of 3 tokens")

    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": said}]
    options = {
        "messages": [*conversation, {"role": "user", "content": "And now?"}],
        "temperature": 0, "max_tokens": 3, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    answer = loaded.evaluate("(options) => engine.chat.completions.create(options)", options)
    choice, usage = answer["choices"][0], answer["usage"]
    # The page asked the same: all but the last token of the prompt is there.
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
    assert choice["message"]["content"].strip() == answers.nth(1).inner_text()
    interpreter.cached.clear()
    logits = interpreter.prefill(choice["prompt_token_ids"])
    assert_close(answer, logits)
    assert choice["token_ids"] == greedy(interpreter, logits, 3)


def test_a_prompt_longer_than_the_context_is_refused(loaded: Page) -> None:
    message = loaded.evaluate(
        "(prompt) => engine.completions.create({ prompt }).then(() => '', ({ message }) => message)", tokens(2049)
    )
    assert message.startswith("The prompt has 2049 tokens but the model's context holds 2048: ")


def test_a_reload_takes_everything_from_the_browser(loaded: Page, url: str) -> None:
    requested: list[str] = []
    loaded.on("request", lambda request: requested.append(request.url.removeprefix(url)))
    open_page(loaded, url)
    assert [name for name in requested if name.startswith("models/")] == [
        name for name in requested if name.endswith("/manifest.json")
    ]
    load = loaded.evaluate("engine.info.load")
    assert load["downloaded_bytes"] == 0
    assert load["cached_bytes"] > 90e6
    first = PROMPTS[0]
    assert complete(loaded, prompt=first["text"], max_tokens=1)["choices"][0]["token_ids"] == first["greedy"][:1]


@pytest.fixture(scope="module")
def short_site(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a context of 32 tokens, in chunks of 16."""
    folder = tmp_path_factory.mktemp("short") / "site"
    options = ["--context", str(CONTEXT), "--prefill-chunk", "16"]
    assert main(["build", str(model), "-o", str(folder), *options]) == 0
    return folder


def test_the_context_is_used_to_its_end_and_not_beyond(browser: Browser, short_site: Path) -> None:
    bundle = open_bundle(short_site)
    interpreter = Engine(bundle, InterpreterBackend(bundle))
    prompt = tokens(CONTEXT - 3)
    with serving(short_site) as address, opened(browser) as page:
        open_page(page, address)
        answer = complete(page, prompt=prompt, max_tokens=100, ignore_eos=True)
        message = page.evaluate(
            "(prompt) => engine.completions.create({ prompt }).then(() => '', ({ message }) => message)",
            tokens(CONTEXT + 1),
        )
    logits = interpreter.prefill(prompt)
    assert_close(answer, logits)
    # Three more tokens fit; a fourth is said, and needs no place.
    assert answer["choices"][0]["token_ids"] == greedy(interpreter, logits, 4)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert message.startswith("The prompt has 33 tokens but the model's context holds 32: ")
