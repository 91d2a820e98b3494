"""Whole runs in a second browser engine: Firefox, with another WGSL compiler and WebGPU's own limits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from webrelax.packaging.serve import serving

from .firefox_bidi import FirefoxPage, firefox
from .toy import ANSWER, build_toy_site

pytestmark = [pytest.mark.firefox, pytest.mark.slow]

TOLERANCE = 0.02
PROMPT = json.loads((Path(__file__).parents[1] / "tests/data/oracle/smollm2.json").read_text("utf-8"))["prompts"][0]
SETTLED = ("Ready", "Not ready")


def wait_until_loaded(page: FirefoxPage, minutes: float = 10) -> str:
    """The page's status once the model is loaded or has failed to."""
    end = time.monotonic() + 60 * minutes
    while (status := page.evaluate("document.querySelector('#status').textContent")) not in SETTLED:
        assert time.monotonic() < end, "the model does not get ready"
        time.sleep(0.5)
    return str(status)


def test_the_model_answers_as_the_reference(url: str) -> None:
    """The page loads under its own security policy, which BiDi does not need to be lifted."""
    count = 12
    assert min(PROMPT["margins"][:count]) > TOLERANCE
    with firefox(timeout_s=600) as page:
        page.goto(url + "?target=webgpu")
        status = wait_until_loaded(page)
        assert (status, page.evaluate("document.querySelector('#error-text').textContent")) == ("Ready", "")
        options = {"prompt": PROMPT["text"], "max_tokens": count, "temperature": 0, "logprobs": 100}
        choice = page.evaluate(f"engine.completions.create({json.dumps(options)})")["choices"][0]
    assert choice["prompt_token_ids"] == PROMPT["ids"]
    logits = dict(choice["logprobs"]["top_logits"])
    reference = zip(PROMPT["top20"], PROMPT["logits"], strict=True)
    assert max(abs(logits[token] - logit) for token, logit in reference) < TOLERANCE
    assert choice["token_ids"] == PROMPT["greedy"][:count]


def test_the_cpu_answers_by_threads(tmp_path: Path) -> None:
    """Workers within a worker, shared memory and its waits, in another engine."""
    with serving(build_toy_site(tmp_path / "site")) as address, firefox() as page:
        page.goto(address + "?target=wasm&threads=2")
        assert wait_until_loaded(page, minutes=1) == "Ready", page.evaluate(
            "document.querySelector('#error-text').textContent"
        )
        assert page.evaluate("[engine.info.target, engine.info.threads]") == ["wasm", 2]
        options = json.dumps({"messages": [{"role": "user", "content": "Why?"}], "temperature": 0})
        answer = page.evaluate(f"engine.chat.completions.create({options})")
        assert answer["choices"][0]["message"]["content"] == ANSWER
