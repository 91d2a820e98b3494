"""Headless Chromium with WebGPU in software, driven by Playwright.

with chromium() as browser, serving(site) as url:
    page = browser.new_page()
    page.goto(url)
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, BrowserContext, sync_playwright

# SwiftShader is the WebGPU implementation that Chromium carries itself: the same on every machine.
FLAGS = (
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NO_WEBGPU = ("--no-sandbox", "--disable-features=WebGPU", "--disable-gpu", *FLAGS[4:])


def executable() -> str | None:
    """$WEBRELAX_CHROMIUM, or the system's Chromium or Chrome; None for Playwright's own."""
    names = ("chromium", "google-chrome")
    found = os.environ.get("WEBRELAX_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    # A snap is confined: it cannot use the profile that Playwright makes for it.
    return None if found and found.startswith("/snap/") else found


# The page's own override, in the address of each page of a context before any of its scripts runs. A page would choose
# the CPU here, where WebGPU is SwiftShader's.
_TARGET = """
if (location.protocol.startsWith("http")) {
  const url = new URL(location.href);
  if (!url.searchParams.has("target")) url.searchParams.append("target", "TARGET");
  history.replaceState(history.state, "", url);
}
"""


def new_context(browser: Browser, target: str | None = "webgpu", **options: Any) -> BrowserContext:
    """A context whose pages run this target; None: what they choose."""
    context = browser.new_context(**options)
    if target is not None:
        context.add_init_script(_TARGET.replace("TARGET", target))
    return context


@contextlib.contextmanager
def chromium(flags: tuple[str, ...] = FLAGS) -> Iterator[Browser]:
    """A running browser for the length of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=list(flags))
        try:
            yield browser
        finally:
            browser.close()
