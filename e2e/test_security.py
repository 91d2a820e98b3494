"""The page under its own security policy, as a visitor has it: the other tests lift it, for their own tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from webrelax.packaging.serve import serving

from .chromium import new_context
from .toy import ANSWER, build_toy_site


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_site(tmp_path_factory.mktemp("toy"))


def test_the_page_keeps_to_its_policy(browser: Browser, folder: Path) -> None:
    context = new_context(browser)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.add_init_script("""
      document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
        console.error("violation", violatedDirective, blockedURI);
      });
    """)
    with serving(folder) as address:
        page.goto(address)
        expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
        page.fill("#prompt", "Why?")
        page.keyboard.press("Enter")
        expect(page.locator(".message.assistant p").first).to_have_text(ANSWER.split("\n\n")[0], timeout=30_000)
        page.click("#settings-button")
        expect(page.locator("#facts")).to_contain_text("Dispatches a token")
        page.reload()
        expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    assert troubles == []
    context.close()


def test_the_policy_is_enforced(browser: Browser, folder: Path) -> None:
    """Neither code from text nor another host: it is the policy that the test above sees kept."""
    context = new_context(browser)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.add_init_script("""
      addEventListener("load", async () => {
        try { (0, eval)("1"); } catch ({ name }) { console.log("eval", name); }
        await fetch("https://example.org/").catch(({ name }) => console.log("fetch", name));
        document.documentElement.dataset.tried = "yes";
      });
    """)
    with serving(folder) as address:
        page.goto(address)
        expect(page.locator("html")).to_have_attribute("data-tried", "yes")
    assert "eval EvalError" in troubles
    assert "fetch TypeError" in troubles
    assert any("Content Security Policy" in trouble and "example.org" in trouble for trouble in troubles)
    context.close()
