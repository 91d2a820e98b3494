"""The run time as a script uses it: several engines and tabs, loads that are given up, devices that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.serve import serving

from .conftest import opened
from .toy import ANSWER, build_toy_site

# Lists the devices that are opened, with what became of each, and shortens what the tests do.
WATCH = """
window.devices = [];
const request = GPUAdapter.prototype.requestDevice;
GPUAdapter.prototype.requestDevice = async function (...options) {
  const device = await request.apply(this, options);
  const entry = { device, lost: null };
  device.lost.then(({ reason }) => (entry.lost = reason));
  window.devices.push(entry);
  return device;
};
window.create = async (options = {}) =>
  (await import("./runtime.js")).createEngine({ model: "models/Toy-1/", target: "webgpu", ...options });
window.say = async (engine, content, options = {}) => {
  const messages = [{ role: "user", content }];
  return (await engine.chat.completions.create({ messages, temperature: 0, ...options })).choices[0].message.content;
};
window.codeOf = async (promise) => promise.then(() => "none", (error) => error.code ?? String(error));
window.settled = () => new Promise((resolve) => setTimeout(resolve, 300));
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(build_toy_site(tmp_path_factory.mktemp("toy"), context=2048)) as address:
        yield address


@pytest.fixture
def script(page: Page, toy: str) -> Page:
    """A bare page of the site, for scripts alone."""
    page.add_init_script(WATCH)
    page.goto(toy + "models.json")
    return page


@pytest.fixture(scope="module")
def loaded(shared_page: Page, toy: str) -> Page:
    shared_page.add_init_script(WATCH)
    shared_page.goto(toy + "models.json")
    shared_page.evaluate("(async () => { window.engine = await create(); })()")
    return shared_page


@pytest.mark.parametrize("phase", ["manifest", "device", "download", "compile"])
def test_a_load_that_is_given_up_leaves_no_device_and_says_no_more(script: Page, phase: str) -> None:
    found = script.evaluate(
        """async (phase) => {
          const controller = new AbortController();
          let late = 0;
          const onProgress = (progress) => {
            if (controller.signal.aborted) late++;
            if (progress.phase === phase) controller.abort();
          };
          const code = await codeOf(create({ onProgress, signal: controller.signal }));
          await settled();
          return { code, late, lost: devices.map(({ lost }) => lost) };
        }""",
        phase,
    )
    assert found["code"] == "aborted"
    assert found["late"] == 0
    assert set(found["lost"]) <= {"destroyed"}
    assert script.evaluate("(async () => say(await create(), 'Hi'))()") == ANSWER


def test_a_load_that_fails_leaves_no_device(script: Page) -> None:
    script.route("**/weights-001.bin", lambda route: route.fulfill(status=404, body=""))
    assert script.evaluate("codeOf(create())") == "missing-file"
    script.evaluate("settled()")
    assert script.evaluate("devices.map(({ lost }) => lost)") == ["destroyed"]


def test_two_engines_in_one_page(script: Page) -> None:
    found = script.evaluate("""async () => {
      const [one, two] = await Promise.all([create(), create()]);
      const together = await Promise.all([say(one, "A"), say(two, "B, at some more length than the other")]);
      one.dispose();
      const after = await say(two, "And now?");
      const code = await codeOf(say(one, "Hi"));
      await settled();
      return { together, after, code, lost: devices.map(({ lost }) => lost) };
    }""")
    assert found["together"] == [ANSWER, ANSWER]
    assert found["after"] == ANSWER
    assert found["code"] == "disposed"
    assert found["lost"] == ["destroyed", None]


def test_a_second_tab(browser: Browser, toy: str) -> None:
    with opened(browser) as first:
        first.goto(toy)
        expect(first.locator("#status")).to_have_text("Ready", timeout=30_000)
        second = first.context.new_page()
        second.goto(toy)
        expect(second.locator("#status")).to_have_text("Ready", timeout=30_000)
        assert second.evaluate("engine.info.load.downloaded_bytes") == 0
        for tab in (first, second):
            tab.fill("#prompt", "Hello")
            tab.keyboard.press("Enter")
        for tab in (first, second):
            expect(tab.locator(".message.assistant p").first).to_have_text(ANSWER.split("\n\n")[0], timeout=30_000)
        second.close()
        expect(first.locator("#status")).to_have_text("Ready", timeout=30_000)
        first.fill("#prompt", "Again")
        first.keyboard.press("Enter")
        expect(first.locator(".message.assistant")).to_have_count(2)
        expect(first.locator("#status")).to_have_text("Ready", timeout=30_000)


def test_a_hidden_tab_answers_to_the_end(page: Page, toy: str) -> None:
    """It draws no frames: the text is there all the same once the answer is."""
    page.add_init_script("window.requestAnimationFrame = () => 1")
    page.goto(toy)
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    page.fill("#prompt", "Hello")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant p").first).to_have_text(ANSWER.split("\n\n")[0], timeout=30_000)


def test_disposed_or_lost_while_it_answers(script: Page) -> None:
    found = script.evaluate("""async () => {
      const results = [];
      for (const end of [(engine) => engine.dispose(), (engine, { device }) => device.destroy()]) {
        const engine = await create();
        let count = 0;
        const read = async () => {
          const messages = [{ role: "user", content: "Hi" }];
          for await (const _ of engine.chat.completions.create({ messages, temperature: 0, stream: true })) {
            if (++count === 5) end(engine, devices.at(-1));
          }
        };
        results.push([await codeOf(read()), count, await codeOf(say(engine, "Hi"))]);
        engine.dispose();
      }
      return results;
    }""")
    # Who destroys the device behind the engine's back gets an error too, not silence.
    assert found == [["disposed", 5, "disposed"], ["device-lost", 5, "device-lost"]]


def test_a_failed_step_leaves_the_cache_true(script: Page) -> None:
    """Steps fail in the middle of a prompt and of an answer; what was computed before is kept, the rest done again."""
    found = script.evaluate("""async () => {
      const engine = await create();
      const failures = [];
      for (const method of ["submit", "mapAsync"]) {
        const owner = method === "submit" ? GPUQueue.prototype : GPUBuffer.prototype;
        const original = owner[method];
        for (const at of [1, 3, 8]) {
          let count = 0;
          owner[method] = function (...options) {
            if (++count === at) throw new Error("injected");
            return original.apply(this, options);
          };
          failures.push(await codeOf(say(engine, "A question of more than one chunk, please: " + at)));
          owner[method] = original;
          failures.push((await say(engine, "A question of more than one chunk, please: " + at)));
        }
      }
      return failures;
    }""")
    assert found[1::2] == [ANSWER] * 6
    assert all(code != "none" for code in found[::2])


def test_every_chunk_is_whole_characters(script: Page) -> None:
    """The toy's tokens are single bytes: most characters beyond ASCII take several."""
    chunks: list[str] = script.evaluate("""async () => {
      const engine = await create();
      const chunks = [];
      const messages = [{ role: "user", content: "Hi" }];
      for await (const { choices: [{ delta }] } of engine.chat.completions.create({
        messages, temperature: 0, stream: true,
      })) chunks.push(delta.content);
      return chunks;
    }""")
    assert "".join(chunks) == ANSWER
    assert "🌈" in chunks
    assert "\ufffd" not in "".join(chunks)


@pytest.mark.parametrize(
    "text", ["half a pair \ud83c", "\udf08 the other half", "", "  ", "\0", "<|im_end|>", "🌈" * 20], ids=ascii
)
def test_any_text_of_a_user_is_answered(loaded: Page, text: str) -> None:
    # As ASCII: halves of surrogate pairs travel as escapes.
    answer = loaded.evaluate("(code) => say(engine, JSON.parse(code))", json.dumps(text))
    assert answer == ANSWER


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"prompt": [258]}, "token ids from 0 to 257"),
        ({"prompt": [-1]}, "token ids from 0 to 257"),
        ({"prompt": [1.5]}, "token ids from 0 to 257"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "x", "seed": -1}, "seed must be a whole number of at least 0"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        ({"prompt": "x", "stop": ""}, "stop must be a string"),
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_refused_and_harms_nothing(loaded: Page, options: dict[str, Any], part: str) -> None:
    message = loaded.evaluate(
        "(options) => engine.completions.create(options).then(() => '', (error) => error.message)", options
    )
    assert part in message
    assert loaded.evaluate("say(engine, 'Hi')") == ANSWER
