"""A real model in the page: its numbers against an independent reference and against the NumPy interpreter.

Everything goes through the page's public entry, as a user's own script does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from webrelax.packaging.engine import Engine, InterpreterBackend
from webrelax.packaging.reader import open_bundle

TOLERANCE = 0.02
ORACLE = json.loads((Path(__file__).parents[1] / "tests/data/oracle/smollm2.json").read_text("utf-8"))
MINUTES = 60_000.0


@pytest.fixture(scope="module")
def loaded(browser: Browser, url: str) -> Iterator[Page]:
    """The page with the model ready to answer, as `engine`."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(20 * MINUTES)
    page.goto(url)
    page.wait_for_function("['Ready', 'Not ready'].includes(document.querySelector('#status').textContent)")
    assert page.locator("#error-text").inner_text() == ""
    yield page
    context.close()


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
    ids: list[int] = [token for prompt in ORACLE["prompts"] for token in prompt["ids"]]
    return (ids * (count // len(ids) + 1))[:count]


def assert_close(found: list[list[float]], expected: Any) -> None:
    assert len(found) == 20
    assert max(abs(logit - float(expected[int(token)])) for token, logit in found) < TOLERANCE


@pytest.mark.parametrize("prompt", ORACLE["prompts"], ids=lambda prompt: prompt["text"][:20])
def test_logits_and_greedy_tokens_of_the_reference(loaded: Page, prompt: dict[str, Any]) -> None:
    sure = next((at for at, margin in enumerate(prompt["margins"]) if margin < TOLERANCE), len(prompt["margins"]))
    answer = complete(loaded, prompt=prompt["text"], max_tokens=max(sure, 1), logprobs=100)
    choice = answer["choices"][0]
    assert choice["prompt_token_ids"] == prompt["ids"]
    logits = dict(choice["logprobs"]["top_logits"])
    reference = zip(prompt["top20"], prompt["logits"], strict=True)
    assert max(abs(logits[token] - logit) for token, logit in reference) < TOLERANCE
    assert choice["token_ids"][:sure] == prompt["greedy"][:sure]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 300])
def test_prompts_of_many_lengths_agree_with_the_interpreter(loaded: Page, interpreter: Engine, count: int) -> None:
    """300 tokens are several prefill chunks, 129 are one and a single token more."""
    prompt = tokens(count)
    loaded.evaluate("engine.reset()")
    answer = complete(loaded, prompt=prompt, max_tokens=1)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    interpreter.cached.clear()
    assert_close(answer["choices"][0]["logprobs"]["top_logits"], interpreter.prefill(prompt))


@pytest.mark.slow
def test_a_second_turn_continues_from_the_cache(loaded: Page, interpreter: Engine) -> None:
    loaded.evaluate("engine.reset()")
    first, second = loaded.evaluate("""async () => {
      const messages = [{ role: "user", content: "Hi" }];
      const options = { temperature: 0, max_tokens: 6 };
      const first = await engine.chat.completions.create({ messages, ...options });
      messages.push(first.choices[0].message, { role: "user", content: "And now?" });
      const second = await engine.chat.completions.create({ messages, ...options, logprobs: true, top_logprobs: 20 });
      return [first, second];
    }""")
    prompt = second["choices"][0]["prompt_token_ids"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    interpreter.cached.clear()
    assert_close(second["choices"][0]["logprobs"]["top_logits"], interpreter.prefill(prompt))
