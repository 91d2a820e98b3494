"""What a visitor does with the page, and what a driver does to it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

# An init script: `loseDevice()` takes the page's GPU away.
LOSE = """
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...options) {
  const device = await request.apply(this, options);
  const lost = new Promise((resolve) => (window.loseDevice = () => {
    device.destroy();
    resolve({ reason: "unknown", message: "driver reset" });
  }));
  Object.defineProperty(device, "lost", { value: lost });
  return device;
};
"""


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)


def ask(page: Page, text: str, answers: int = 1) -> None:
    page.fill("#prompt", text)
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant")).to_have_count(answers)
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
