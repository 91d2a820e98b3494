"""Fixtures: the site of a real model, built as a user builds it, served, and open in Chromium."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from webrelax.packaging.cli import main
from webrelax.packaging.models import MODELS, fetch
from webrelax.packaging.serve import serving

from . import firefox_bidi
from .chromium import chromium, new_context

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build/e2e-site"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    firefox = pytest.mark.skipif(firefox_bidi.executable() is None, reason="needs Firefox")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("firefox"):
            item.add_marker(firefox)


def _newest_source() -> float:
    folders = (ROOT / "compiler", ROOT / "packaging", ROOT / "web")
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return max(file.stat().st_mtime for file in files)


@pytest.fixture(scope="session")
def model() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file."""
    return fetch(MODELS["smollm2"], ROOT / "models")


@pytest.fixture(scope="session")
def site(model: Path) -> Path:
    """The model's site; built once a session, unless an earlier one is newer than every source."""
    made = SITE / "models.json"
    if not made.is_file() or made.stat().st_mtime < _newest_source():
        assert main(["build", str(model), "-o", str(SITE), "--force"]) == 0
        made.touch()
    return SITE


@pytest.fixture(scope="session")
def url(site: Path) -> Iterator[str]:
    """The served site's address, ending in a slash."""
    with serving(site) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextlib.contextmanager
def opened(browser: Browser, target: str | None = "webgpu", **options: Any) -> Iterator[Page]:
    """An empty tab with storage of its own, for a target. It is an error if the page throws what nothing catches."""
    # Playwright evaluates in the page, which the page's security policy forbids: test_security.py keeps to the policy.
    context = new_context(browser, target, bypass_csp=True, **options)
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    context.close()
    assert errors == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as tab:
        yield tab


@pytest.fixture(scope="module")
def shared_page(browser: Browser) -> Iterator[Page]:
    """One tab for all tests of a module, for what takes long to load."""
    with opened(browser) as tab:
        yield tab
