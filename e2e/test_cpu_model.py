"""A real model on the CPU, in Chromium: its numbers against a float32 reference, by one thread and by two.

The kernels of the default build round activations to 8 bits: so far from the reference they may be, and no further.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import opened

pytestmark = pytest.mark.slow

TOLERANCE = 1.0
PROMPTS = json.loads((Path(__file__).parents[1] / "tests/data/oracle/smollm2.json").read_text("utf-8"))["prompts"]


@pytest.fixture(scope="module", params=[1, 2])
def loaded(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of the model, which takes the CPU by itself: the only GPU here is a software one."""
    with opened(browser, target=None) as page:
        page.add_init_script("""
          window.longTasks = [];
          new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration)))
            .observe({ type: "longtask", buffered: true });
        """)
        page.goto(f"{url}?threads={request.param}")
        expect(page.locator("#status")).to_have_text("Ready", timeout=120_000)
        info = page.evaluate("engine.info")
        assert (info["target"], info["threads"]) == ("wasm", request.param)
        yield page


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt["text"][:20])
def test_the_reference_says_the_same(loaded: Page, prompt: dict[str, Any]) -> None:
    options = {"prompt": prompt["text"], "max_tokens": 1, "temperature": 0, "logprobs": 200}
    choice = loaded.evaluate("(options) => engine.completions.create(options)", options)["choices"][0]
    assert choice["prompt_token_ids"] == prompt["ids"]
    assert choice["token_ids"] == prompt["greedy"][:1]
    logits = dict(choice["logprobs"]["top_logits"])
    reference = zip(prompt["top20"], prompt["logits"], strict=True)
    assert max(abs(logits[token] - logit) for token, logit in reference) < TOLERANCE


def test_prompts_in_chunks_and_token_by_token_agree(loaded: Page) -> None:
    ids = [token for prompt in PROMPTS for token in prompt["ids"]][:150]
    found = loaded.evaluate(
        """async (ids) => {
          const last = async (prompt) => {
            const answer = await engine.completions.create({ prompt, max_tokens: 1, temperature: 0, logprobs: 1 });
            return [...answer.choices[0].logprobs.top_logits[0], answer.usage.prompt_tokens_details.cached_tokens];
          };
          engine.reset();
          const whole = await last(ids);
          engine.reset();
          for (const length of [1, 20, 21, 22, 149]) await last(ids.slice(0, length));
          return [whole, await last(ids)];
        }""",
        ids,
    )
    (token, logit, cached), (again, other, kept) = found
    assert (token, cached, kept) == (again, 0, len(ids) - 1)
    assert abs(logit - other) < TOLERANCE


def test_a_conversation_in_the_page_does_not_block_it(loaded: Page) -> None:
    """One that blocks the page does so each time; a busy machine, now and then."""
    loaded.click("#settings-button")
    loaded.fill("#temperature", "0")
    loaded.fill("#max_tokens", "24")
    loaded.keyboard.press("Escape")
    seen: list[list[float]] = []
    for answers, question in enumerate(("Why is the sky blue?", "And at night?", "And on the moon?"), 1):
        loaded.evaluate("longTasks.length = 0")
        loaded.fill("#prompt", question)
        loaded.keyboard.press("Enter")
        expect(loaded.locator(".message.assistant")).to_have_count(answers)
        expect(loaded.locator("#status")).to_have_text("Ready", timeout=120_000)
        seen.append(loaded.evaluate("longTasks"))
    assert [] in seen
