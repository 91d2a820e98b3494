"""The CPU target in Chromium: chosen where there is no GPU, run by a worker and its threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from webrelax.packaging.serve import serving

from .conftest import opened
from .page_actions import LOSE, ask, open_page
from .toy import ANSWER, NAME, build_toy_site

FIRST_PARAGRAPH = ANSWER.split("\n\n")[0]
SCRIPT = """
window.create = async (options = {}) =>
  (await import("./runtime.js")).createEngine({ model: "models/Toy-1/", target: "wasm", ...options });
window.say = async (engine, content, options = {}) => {
  const messages = [{ role: "user", content }];
  return (await engine.chat.completions.create({ messages, temperature: 0, ...options })).choices[0].message.content;
};
window.codeOf = async (promise) => promise.then(() => "none", (error) => error.code ?? String(error));
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(build_toy_site(tmp_path_factory.mktemp("toy"), context=2048)) as address:
        yield address


@pytest.fixture(scope="module")
def slow_toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = build_toy_site(tmp_path_factory.mktemp("slow"), answer="word " * 400, context=2048, labour=50_000)
    with serving(site) as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab that chooses its target itself."""
    with opened(browser, target=None) as tab:
        yield tab


@pytest.fixture
def script(page: Page, toy: str) -> Page:
    """A bare page of the site, for scripts alone."""
    page.add_init_script(SCRIPT)
    page.goto(toy + "models.json")
    return page


def expect_no_workers(page: Page) -> None:
    """Chromium gives a worker some time to end by itself."""
    for _ in range(100):
        if not page.workers:
            break
        page.wait_for_timeout(100)
    assert page.workers == []


@pytest.mark.parametrize(("threads", "shown"), [(1, "1 thread"), (2, "2 threads")])
def test_the_page_takes_the_cpu_rather_than_a_software_gpu(page: Page, toy: str, threads: int, shown: str) -> None:
    open_page(page, f"{toy}?threads={threads}")
    expect(page.locator("#device")).to_have_text(f"CPU · {shown} · simd128")
    info = page.evaluate("engine.info")
    assert (info["target"], info["threads"], info["profile"]) == ("wasm", threads, "simd128")
    assert len([worker for worker in page.workers if "pool_worker" in worker.url]) == threads - 1
    ask(page, "Why is there a rainbow?")
    answer = page.locator(".message.assistant")
    expect(answer.locator("p").first).to_have_text(FIRST_PARAGRAPH)
    expect(answer.locator("strong")).to_have_text(["red", "blue"])
    ask(page, "Again?", answers=2)
    expect(answer.nth(1).locator("p").first).to_have_text(FIRST_PARAGRAPH)
    page.click("#settings-button")
    expect(page.locator("#facts")).to_contain_text(f"on the CPU, by {shown}")


def test_a_reload_downloads_no_file_again(page: Page, toy: str) -> None:
    open_page(page, toy)
    assert page.evaluate("engine.info.load.cached_bytes") == 0
    open_page(page, toy)
    assert page.evaluate("engine.info.load.downloaded_bytes") == 0
    assert page.evaluate("engine.info.load.cached_bytes") > 0


def test_the_address_chooses_the_target(page: Page, toy: str) -> None:
    open_page(page, toy + "?target=webgpu")
    expect(page.locator("#device")).to_contain_text("WebGPU · ")
    assert page.evaluate("[engine.info.target, engine.info.threads]") == ["webgpu", 0]
    page.goto(toy + "?target=cuda")
    expect(page.locator("#error-text")).to_contain_text('knows no target "cuda": choose one of webgpu, wasm')
    page.goto(toy + "?threads=many")
    expect(page.locator("#error-text")).to_contain_text("threads must be a whole number from 1 to 64")


def test_a_model_of_one_target_runs_on_that_one(page: Page, tmp_path: Path) -> None:
    for target in ("webgpu", "wasm"):
        with serving(build_toy_site(tmp_path / target, targets=(target,))) as address:
            open_page(page, address)
            assert page.evaluate("engine.info.target") == target
            ask(page, "Hello")
            other = {"webgpu": "wasm", "wasm": "webgpu"}[target]
            page.goto(f"{address}?target={other}")
            expect(page.locator("#error-text")).to_contain_text(f'was not built for target "{other}"')


def test_without_simd_the_reason_is_told(page: Page, tmp_path: Path) -> None:
    page.add_init_script("WebAssembly.validate = () => false")
    # The engine's worker is another world: the page's own script is what is changed there.
    page.route("**/cpu_features.js", lambda route: route.fulfill(
        body=route.fetch().text().replace("WebAssembly.validate(", "!WebAssembly.validate("),
        content_type="text/javascript",
        headers={"Cross-Origin-Embedder-Policy": "require-corp"},
    ))  # fmt: skip
    with serving(build_toy_site(tmp_path / "site", targets=("wasm",))) as address:
        page.goto(address)
        expect(page.locator("#error-text")).to_contain_text("WebAssembly has no 128-bit SIMD", timeout=30_000)
        expect(page.locator("#error")).to_have_attribute("data-code", "limits")


def test_stop_in_the_middle_and_go_on(page: Page, slow_toy: str) -> None:
    open_page(page, slow_toy)
    for answers in (1, 2):
        page.fill("#prompt", "Tell me everything")
        page.keyboard.press("Enter")
        body = page.locator(".message.assistant .body").nth(answers - 1)
        expect(body).to_contain_text("word word")
        page.click("#stop")
        expect(page.locator("#status")).to_have_text("Stopped")
        text = body.inner_text()
        page.wait_for_timeout(200)
        assert body.inner_text() == text
        assert 0 < len(text) < 2000
    page.click("#settings-button")
    page.fill("#max_tokens", "10")
    page.keyboard.press("Escape")
    ask(page, "Go on", answers=3)


def test_a_stop_is_heard_within_a_few_tokens(page: Page, slow_toy: str) -> None:
    """The cache tells how far it had come: the next prompt is what it would have said, and finds some of it there."""
    page.add_init_script(SCRIPT)
    page.goto(slow_toy + "models.json")
    found = page.evaluate("""async () => {
      const engine = await create();
      const prompt = "<|im_start|>assistant\\n";
      const options = { temperature: 0, max_tokens: 60, logprobs: 1 };
      const { token_ids, prompt_token_ids } = (await engine.completions.create({ prompt, ...options })).choices[0];
      const results = [];
      for (const leave of [false, true]) {
        engine.reset();
        const stopping = new AbortController();
        let seen = 0;
        let code = null;
        try {
          const { signal } = stopping;
          for await (const _ of engine.completions.create({ prompt, ...options, stream: true, signal })) {
            if (++seen < 3) continue;
            if (leave) break;
            stopping.abort();
          }
        } catch (error) {
          code = error.code;
        }
        const next = await engine.completions.create({ prompt: [...prompt_token_ids, ...token_ids], max_tokens: 1 });
        results.push([code, seen, next.usage.prompt_tokens_details.cached_tokens - prompt_token_ids.length]);
      }
      return results;
    }""")
    assert [result[:2] for result in found] == [["aborted", 3], [None, 3]]
    # Those that were seen, those that were on their way, and the one that was being computed.
    assert all(2 <= computed <= 12 for _, _, computed in found), found


def test_the_interface_is_the_same(script: Page) -> None:
    found = script.evaluate("""async () => {
      const engine = await create();
      const messages = [{ role: "user", content: "Hi" }];
      const results = {};
      results.temperature = await codeOf(engine.completions.create({ prompt: "x", temperature: -1 }));
      try { engine.completions.create({ prompt: "x", temperature: -1, stream: true }); }
      catch (error) { results.streamed = error.code; }
      results.context = await codeOf(engine.completions.create({ prompt: "x".repeat(3000) }));
      results.aborted = await codeOf(say(engine, "Hi", { signal: AbortSignal.abort() }));
      const first = engine.chat.completions.create({ messages, temperature: 0, logprobs: true, top_logprobs: 2 });
      results.busy = await codeOf(engine.completions.create({ prompt: "x" }));
      try { engine.reset(); } catch (error) { results.reset = error.code; }
      const { choices: [choice], usage } = await first;
      results.choice = { content: choice.message.content, first: choice.prompt_token_ids[0],
        logprobs: choice.logprobs.content[0].top_logprobs.length, prompt_tokens: usage.prompt_tokens };
      const chunks = [];
      const stream = engine.chat.completions.create({ messages, temperature: 0, stream: true });
      for await (const chunk of stream) chunks.push(chunk);
      results.text = chunks.map((chunk) => chunk.choices[0].delta.content).join("");
      results.ids = chunks[0].choices[0].prompt_token_ids.length;
      results.last = [chunks.at(-1).choices[0].finish_reason, chunks.at(-1).usage.prompt_tokens_details.cached_tokens];
      engine.reset();
      results.uncached = (await engine.chat.completions.create({ messages, max_tokens: 1 }))
        .usage.prompt_tokens_details.cached_tokens;
      const running = codeOf(say(engine, "Hi"));
      engine.dispose();
      results.disposed = [await running, await codeOf(say(engine, "Hi"))];
      return results;
    }""")
    assert found["choice"] == {"content": ANSWER, "first": 256, "logprobs": 2, "prompt_tokens": found["ids"]}
    assert found["text"] == ANSWER
    assert found["last"] == ["stop", found["ids"] - 1]
    assert found["uncached"] == 0
    assert found["disposed"] == ["disposed", "disposed"]
    codes = ("temperature", "streamed", "context", "aborted", "busy", "reset")
    assert [found[name] for name in codes] == ["options", "options", "context", "aborted", "busy", "busy"]


@pytest.mark.parametrize("phase", ["manifest", "device", "download", "compile"])
def test_a_load_that_is_given_up_leaves_no_worker_and_says_no_more(script: Page, phase: str) -> None:
    found = script.evaluate(
        """async (phase) => {
          const controller = new AbortController();
          let late = 0;
          const onProgress = (progress) => {
            if (controller.signal.aborted) late++;
            if (progress.phase === phase) controller.abort();
          };
          return { code: await codeOf(create({ onProgress, signal: controller.signal })), late };
        }""",
        phase,
    )
    assert found == {"code": "aborted", "late": 0}
    expect_no_workers(script)
    assert script.evaluate("(async () => say(await create(), 'Hi'))()") == ANSWER


def test_errors_of_the_files_reach_the_page(page: Page, tmp_path: Path) -> None:
    site = build_toy_site(tmp_path / "site")
    shard = site / f"models/{NAME}/weights-001.bin"
    content = shard.read_bytes()
    shard.unlink()
    with serving(site) as address:
        page.goto(address)
        expect(page.locator("#error")).to_have_attribute("data-code", "missing-file", timeout=30_000)
        expect(page.locator("#error-text")).to_contain_text("weights-001.bin is missing on the server (HTTP 404)")
        expect(page.locator("#use-cpu")).to_be_hidden()
        expect_no_workers(page)
        shard.write_bytes(content)
        page.click("#retry")
        expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)


@pytest.mark.parametrize(
    ("missing", "advice"),
    [("engine_worker.js", "check that the whole site was uploaded"), ("pool_worker.js", "load it with one thread")],
)
def test_a_site_that_was_not_uploaded_whole(page: Page, tmp_path: Path, missing: str, advice: str) -> None:
    site = build_toy_site(tmp_path / "site")
    (site / missing).unlink()
    with serving(site) as address:
        page.goto(address)
        expect(page.locator("#error-text")).to_contain_text(advice, timeout=30_000)
        expect(page.locator("#error")).to_have_attribute("data-code", "device")


# --- From the GPU to the CPU -----------------------------------------------------------------------------------------


def test_a_lost_gpu_can_be_gone_on_from_with_the_cpu(page: Page, toy: str) -> None:
    page.add_init_script(LOSE)
    open_page(page, toy + "?target=webgpu")
    ask(page, "One")
    expect(page.locator("#use-cpu")).to_be_hidden()
    page.evaluate("loseDevice()")
    expect(page.locator("#error-text")).to_contain_text("The GPU was lost (driver reset)")
    page.click("#use-cpu")
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    expect(page.locator("#device")).to_contain_text("CPU · 2 threads")
    expect(page.locator("#error")).to_be_hidden()
    expect(page.locator(".message")).to_have_count(2)
    ask(page, "Two", answers=2)
    expect(page.locator(".message.assistant p").first).to_have_text(FIRST_PARAGRAPH)
    page.reload()
    expect(page.locator("#device")).to_contain_text("CPU · 2 threads", timeout=30_000)


def test_a_gpu_that_fails_at_load_too(page: Page, toy: str, tmp_path: Path) -> None:
    page.add_init_script("GPU.prototype.requestAdapter = async () => null")
    page.goto(toy + "?target=webgpu")
    expect(page.locator("#error")).to_have_attribute("data-code", "no-adapter", timeout=30_000)
    page.click("#use-cpu")
    expect(page.locator("#status")).to_have_text("Ready", timeout=30_000)
    ask(page, "Hello")
    with serving(build_toy_site(tmp_path / "site", targets=("webgpu",))) as address:
        page.goto(address)
        expect(page.locator("#error")).to_have_attribute("data-code", "no-adapter", timeout=30_000)
        expect(page.locator("#use-cpu")).to_be_hidden()


# --- What it does to the page ----------------------------------------------------------------------------------------

WATCH_LONG_TASKS = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration)))
  .observe({ type: "longtask", buffered: true });
"""


def test_the_page_is_never_blocked(browser: Browser, slow_toy: str) -> None:
    """No task of its main thread takes 50 ms, while it loads and while it answers.

    A busy machine makes any task long, now and then; what the page itself does too long, it does each time.
    """
    seen: list[list[float]] = []
    while len(seen) < 4 and [] not in seen:
        with opened(browser, target=None) as page:
            page.add_init_script(WATCH_LONG_TASKS)
            open_page(page, slow_toy)
            page.click("#settings-button")
            page.fill("#max_tokens", "100")
            page.keyboard.press("Escape")
            ask(page, "A question that fills more than one chunk. " * 4)
            seen.append(page.evaluate("longTasks"))
    assert [] in seen


def heap(page: Page) -> int:
    """Bytes that the page and the engine's worker hold, arrays included, once their garbage is collected."""
    session = page.context.new_cdp_session(page)
    workers: list[str] = []
    answers: list[dict[str, Any]] = []
    session.on("Target.attachedToTarget", lambda event: workers.append(event["sessionId"]))
    session.on("Target.receivedMessageFromTarget", lambda event: answers.append(json.loads(event["message"])))
    session.send("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False})
    session.send("HeapProfiler.collectGarbage")
    found = session.send("Runtime.getHeapUsage")
    assert len(workers) == 1
    for number, method in enumerate(("HeapProfiler.collectGarbage", "Runtime.getHeapUsage")):
        message = json.dumps({"id": number, "method": method})
        session.send("Target.sendMessageToTarget", {"sessionId": workers[0], "message": message})
    while not any(answer.get("id") == 1 for answer in answers):
        page.wait_for_timeout(20)
    session.detach()
    worker = next(answer["result"] for answer in answers if answer.get("id") == 1)
    return sum(int(each["usedSize"] + each.get("backingStorageSize", 0)) for each in (found, worker))


def test_many_conversations_hold_no_memory(page: Page, toy: str) -> None:
    """The kernels' memory cannot grow (its maximum is its size); the rest is compared after 10 and 60."""
    page.add_init_script(SCRIPT)
    page.goto(toy + "models.json")
    page.evaluate("(async () => { window.engine = await create({ threads: 2 }); })()")
    converse = """async (count) => {
      for (let at = 0; at < count; at++) {
        const messages = [{ role: "user", content: `Conversation ${at} of its own` }];
        for (let turn = 0; turn < 2; turn++) {
          const stream = engine.chat.completions.create({ messages, temperature: 0, stream: true });
          let content = "";
          for await (const { choices: [{ delta }] } of stream) content += delta.content;
          messages.push({ role: "assistant", content }, { role: "user", content: "Go on" });
        }
      }
    }"""
    page.evaluate(converse, 10)
    before = heap(page)
    page.evaluate(converse, 50)
    grown = heap(page) - before
    assert grown < 200_000
