"""A host that sends no headers: a service worker isolates the page, so that the CPU's threads can share memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.serve import serving

from .conftest import opened
from .toy import ANSWER, build_toy_site

FIRST_PARAGRAPH = ANSWER.split("\n\n")[0]


class _Plain(SimpleHTTPRequestHandler):
    """Files, one redirect, and ranges of one file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/old":
            self.send_response(302)
            self.send_header("Location", "/index.html")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.headers["Range"]:
            self.send_response(206)
            self.send_header("Content-Range", "bytes 2-4/10")
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"234")
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def plainly_serving(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Plain, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build_toy_site(tmp_path / "site", context=2048)


@pytest.fixture
def plain(site: Path) -> Iterator[str]:
    with plainly_serving(site) as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser, target=None) as tab:
        yield tab


def documents(page: Page) -> list[str]:
    """Lists the addresses that the tab is sent to from now on."""
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url) if request.is_navigation_request() else None)
    return seen


def expect_ready(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)


def registered(page: Page) -> int:
    count: int = page.evaluate("navigator.serviceWorker.getRegistrations().then((found) => found.length)")
    return count


def test_one_reload_isolates_the_page(page: Page, plain: str) -> None:
    seen = documents(page)
    page.goto(plain)
    expect(page.locator("#device")).to_have_text("CPU · 2 threads · simd128", timeout=30_000)
    assert seen == [plain, plain]
    assert page.evaluate("[crossOriginIsolated, engine.info.threads]") == [True, 2]
    page.fill("#prompt", "Hello")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant p").first).to_have_text(FIRST_PARAGRAPH, timeout=30_000)
    # From then on the first load is isolated; and the files are those that were stored before.
    page.goto(plain)
    expect_ready(page)
    assert len(seen) == 3
    assert page.evaluate("crossOriginIsolated")
    assert page.evaluate("engine.info.load.downloaded_bytes") == 0
    assert registered(page) == 1


def test_what_passes_by_the_service_worker_is_as_before(page: Page, plain: str) -> None:
    page.goto(plain)
    expect_ready(page)
    assert page.evaluate("crossOriginIsolated")
    found = page.evaluate("""async () => {
      const part = await fetch("style.css", { headers: { Range: "bytes=2-4" } });
      const redirected = await fetch("old");
      const missing = await fetch("nothing");
      return [part.status, await part.text(), redirected.redirected, new URL(redirected.url).pathname, missing.status];
    }""")
    assert found == [206, "234", True, "/index.html", 404]
    page.goto(plain + "old")  # a document that is elsewhere
    expect_ready(page)
    assert page.url == plain + "index.html"
    assert page.evaluate("crossOriginIsolated")


@pytest.mark.parametrize("damage", ["missing", "broken", "useless"])
def test_a_service_worker_that_does_not_help_costs_one_thread_and_no_more(
    page: Page, site: Path, plain: str, damage: str
) -> None:
    worker = site / "sw.js"
    if damage == "missing":
        worker.unlink()
    else:
        worker.write_text({"broken": "throw new Error('broken')", "useless": "// does nothing"}[damage])
    seen = documents(page)
    page.goto(plain)
    expect_ready(page)
    expect(page.locator("#device")).to_have_text("CPU · 1 thread · simd128", timeout=30_000)
    assert len(seen) == (2 if damage == "useless" else 1)
    page.fill("#prompt", "Hello")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant p").first).to_have_text(FIRST_PARAGRAPH, timeout=30_000)
    page.goto(plain)
    expect_ready(page)
    assert len(seen) == (3 if damage == "useless" else 2)


def test_no_service_worker_where_the_gpu_runs_the_model_or_the_host_isolates(
    page: Page, site: Path, plain: str
) -> None:
    page.goto(plain + "?target=webgpu")
    expect_ready(page)
    assert not page.evaluate("crossOriginIsolated")
    assert registered(page) == 0
    with serving(site) as isolated:
        page.goto(isolated)
        expect_ready(page)
        assert page.evaluate("[crossOriginIsolated, engine.info.target]") == [True, "wasm"]
        assert registered(page) == 0


def test_a_conversation_is_not_lost_to_a_reload(page: Page, plain: str) -> None:
    """From the GPU to the CPU in the middle of one: without the threads that a reload would bring."""
    page.add_init_script("""
      const request = GPUAdapter.prototype.requestDevice;
      GPUAdapter.prototype.requestDevice = async function (...options) {
        const device = await request.apply(this, options);
        let lose;
        Object.defineProperty(device, "lost", { value: new Promise((resolve) => (lose = resolve)) });
        window.loseDevice = () => lose({ reason: "unknown", message: "" });
        return device;
      };
    """)
    seen = documents(page)
    page.goto(plain + "?target=webgpu")
    expect_ready(page)
    page.fill("#prompt", "Hello")
    page.keyboard.press("Enter")
    expect(page.locator("#stats")).to_contain_text("of 2048 tokens", timeout=30_000)
    page.evaluate("loseDevice()")
    page.click("#use-cpu")
    expect(page.locator("#device")).to_have_text("CPU · 1 thread · simd128", timeout=30_000)
    expect(page.locator(".message.assistant p").first).to_have_text(FIRST_PARAGRAPH)
    assert len(seen) == 1
