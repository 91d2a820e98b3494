"""What can go wrong, each time one sentence in the page that says what to do, and a way on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.serve import serving

from .chromium import NO_WEBGPU, executable, new_context
from .page_actions import LOSE
from .toy import NAME, build_toy_site

SHARD = f"models/{NAME}/weights-001.bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_toy_site(tmp_path / "site", context=64)


@pytest.fixture
def toy(folder: Path) -> Iterator[str]:
    with serving(folder) as address:
        yield address


def expect_error(page: Page, code: str, *parts: str) -> None:
    error = page.locator("#error")
    expect(error).to_be_visible(timeout=30_000)
    expect(error).to_have_attribute("data-code", code)
    for part in parts:
        expect(page.locator("#error-text")).to_contain_text(part)


def expect_ready(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    expect(page.locator("#error")).to_be_hidden()


def test_damaged_shard(page: Page, toy: str, folder: Path) -> None:
    shard = folder / SHARD
    content = shard.read_bytes()
    shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    page.goto(toy)
    expect_error(page, "damaged-file", "weights-001.bin is damaged", "SHA-256", "upload the file again")
    expect(page.locator("#send")).to_be_disabled()
    shard.write_bytes(content[:-4])
    page.click("#retry")
    expect_error(page, "damaged-file", f"it has {len(content) - 4} bytes where manifest.json says {len(content)}")
    shard.write_bytes(content)
    page.click("#retry")
    expect_ready(page)


def test_missing_shard(page: Page, toy: str, folder: Path) -> None:
    shard = folder / SHARD
    content = shard.read_bytes()
    shard.unlink()
    page.goto(toy)
    expect_error(page, "missing-file", "weights-001.bin is missing on the server (HTTP 404)")
    shard.write_bytes(content)
    page.click("#retry")
    expect_ready(page)


def test_unknown_model_and_no_models(page: Page, toy: str, folder: Path) -> None:
    page.goto(toy + "?model=Other")
    expect_error(page, "missing-file", f'This site has no model "Other": it has {NAME}.')
    (folder / "models.json").unlink()
    page.goto(toy)
    expect_error(page, "missing-file", "models.json names no model")


def test_another_format(page: Page, toy: str, folder: Path) -> None:
    manifest = folder / f"models/{NAME}/manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 3', '"format": 2'))
    page.goto(toy)
    expect_error(page, "format", "has bundle format 2 but this page reads format 3")


def test_connection_lost_on_the_way(page: Page, toy: str) -> None:
    page.route("**/weights-001.bin", lambda route: route.abort("connectionreset"))
    page.goto(toy)
    expect_error(page, "network", "weights-001.bin could not be fetched", "check the connection")
    page.unroute("**/weights-001.bin")
    page.click("#retry")
    expect_ready(page)


def test_damaged_cache_heals(page: Page, toy: str) -> None:
    page.goto(toy)
    expect_ready(page)
    page.evaluate("""async () => {
      for (const name of await caches.keys()) {
        const cache = await caches.open(name);
        for (const request of await cache.keys()) await cache.put(request, new Response("half a fi"));
      }
    }""")
    page.reload()
    expect_ready(page)
    assert page.evaluate("engine.info.load.cached_bytes") == 0
    page.reload()
    expect_ready(page)
    assert page.evaluate("engine.info.load.downloaded_bytes") == 0


def test_no_webgpu(page: Page, toy: str) -> None:
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined })")
    page.goto(toy)
    expect_error(page, "no-webgpu", "This browser has no WebGPU")


def test_no_adapter(page: Page, toy: str) -> None:
    page.add_init_script("GPU.prototype.requestAdapter = async () => null")
    page.goto(toy)
    expect_error(page, "no-adapter", "found no usable GPU")


def test_browser_without_a_gpu(browser: Browser, toy: str) -> None:
    other = browser.browser_type.launch(executable_path=executable(), args=list(NO_WEBGPU))
    page = new_context(other).new_page()
    page.goto(toy)
    expect(page.locator("#error-text")).to_contain_text("WebGPU", timeout=30_000)
    other.close()


def test_out_of_memory(page: Page, toy: str) -> None:
    page.add_init_script("""
      const pop = GPUDevice.prototype.popErrorScope;
      let scopes = 0;
      GPUDevice.prototype.popErrorScope = async function () {
        const error = await pop.call(this);
        return scopes++ === 0 ? new GPUOutOfMemoryError("no memory") : error;
      };
    """)
    page.goto(toy)
    expect_error(page, "out-of-memory", f"The GPU has not enough memory for {NAME}", "close other tabs")
    page.click("#retry")
    expect_ready(page)


def test_device_lost_between_and_within_answers(page: Page, toy: str) -> None:
    page.add_init_script(LOSE)
    page.goto(toy)
    expect_ready(page)
    page.evaluate("loseDevice()")
    expect_error(page, "device-lost", "The GPU was lost (driver reset)")
    page.click("#retry")
    expect_ready(page)
    page.fill("#prompt", "Hello")
    page.evaluate("""() => {
      // On the tenth step from here.
      const submit = GPUQueue.prototype.submit;
      let count = 0;
      GPUQueue.prototype.submit = function (lists) {
        submit.call(this, lists);
        if (++count === 10) loseDevice();
      };
    }""")
    page.keyboard.press("Enter")
    expect_error(page, "device-lost", "The GPU was lost")
    page.click("#retry")
    expect_ready(page)


def test_conversation_longer_than_the_context(page: Page, toy: str) -> None:
    page.goto(toy)
    expect_ready(page)
    page.fill("#prompt", "x" * 100)
    page.keyboard.press("Enter")
    expect_error(page, "context", "tokens but the model's context holds 64", "begin a new conversation")
    expect(page.locator("#retry")).to_be_hidden()
    expect(page.locator("#prompt")).to_have_value("x" * 100)  # given back, to be shortened
    page.fill("#prompt", "Hi")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_contain_text(
        "The conversation has filled the model's context of 64 tokens"
    )
    expect(page.locator("#error")).to_be_hidden()


def test_a_kernel_that_does_not_compile_is_named(page: Page, toy: str) -> None:
    page.add_init_script("""
      const create = GPUDevice.prototype.createShaderModule;
      GPUDevice.prototype.createShaderModule = function (options) {
        return create.call(this, { ...options, code: options.label === "answer" ? "fn main( {" : options.code });
      };
    """)
    page.goto(toy)
    expect_error(page, "kernel", 'Kernel "answer" does not compile on this GPU (line 1:')
