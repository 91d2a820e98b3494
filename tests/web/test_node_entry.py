"""The entry for Node, over the toy model of the end-to-end tests: the same interface as the page's, on the CPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js"),
    pytest.mark.skipif(not (ROOT / "web/vendor/tokenizers.js").exists(), reason="needs web/vendor (make setup)"),
]


sys.path.append(str(ROOT))  # for e2e/
from e2e import toy  # noqa: E402

sys.path.pop()

HEAD = """
import { createEngine, WebrelaxError } from "./node.js";
const model = "models/Toy-1";
const codeOf = (promise) => promise.then(() => "none", (error) => error.code ?? String(error));
const say = (value) => console.log(JSON.stringify(value));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.build_toy_site(tmp_path_factory.mktemp("node") / "site", context=1024)


def run(site: Path, body: str) -> Any:
    """What the script writes as its last line, as JSON. It must end by itself."""
    script = site / "script.mjs"
    script.write_text(HEAD + body)
    done = subprocess.run(["node", script.name], cwd=site, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("threads", [1, 2])
def test_answers(site: Path, threads: int) -> None:
    found = run(
        site,
        f"""
        const phases = new Set();
        const options = {{ model, threads: {threads}, onProgress: ({{ phase }}) => phases.add(phase) }};
        const engine = await createEngine(options);
        const messages = [{{ role: "user", content: "Hi" }}];
        const answer = await engine.chat.completions.create({{ messages, temperature: 0 }});
        let text = "";
        const stream = engine.chat.completions.create({{ messages, temperature: 0, stream: true }});
        for await (const {{ choices: [{{ delta }}] }} of stream) text += delta.content;
        const {{ info }} = engine;
        say({{ whole: answer.choices[0].message.content, text, info, phases: [...phases] }});
        """,
    )
    assert found["whole"] == found["text"] == toy.ANSWER
    assert found["info"]["target"] == "wasm"
    assert found["info"]["threads"] == threads
    assert found["info"]["load"]["downloaded_bytes"] == 0
    assert found["phases"][0] == "manifest"
    assert found["phases"][-1] == "ready"


def test_the_program_goes_on_meanwhile_and_stops_answers(site: Path) -> None:
    found = run(
        site,
        """
        const engine = await createEngine({ model });
        const stopping = new AbortController();
        let ticks = 0;
        const timer = setInterval(() => ticks++, 1);
        let seen = 0;
        const read = async () => {
          const options = { prompt: "Hello", ignore_eos: true, signal: stopping.signal };
          const stream = engine.completions.create({ ...options, stream: true });
          for await (const _ of stream) if (++seen === 5) stopping.abort();
        };
        const aborted = await codeOf(read());
        const busy = engine.completions.create({ prompt: "Hello", max_tokens: 5 });
        const second = await codeOf(engine.completions.create({ prompt: "Hello" }));
        const { usage } = await busy;
        clearInterval(timer);
        const running = codeOf(engine.completions.create({ prompt: "Hello", ignore_eos: true }));
        engine.dispose();
        const after = await codeOf(engine.completions.create({ prompt: "Hello" }));
        const ends = [await running, after];
        say({ aborted, seen, second, tokens: usage.completion_tokens, ticks, ends });
        """,
    )
    assert found["ticks"] > 0
    assert (found["aborted"], found["seen"], found["second"], found["tokens"]) == ("aborted", 5, "busy", 5)
    assert found["ends"] == ["disposed", "disposed"]


def test_files_are_checked(tmp_path: Path) -> None:
    site = toy.build_toy_site(tmp_path / "site")
    shard = site / "models/Toy-1/weights-001.bin"
    script = """
        const error = await createEngine({ model }).catch((error) => error);
        say({ known: error instanceof WebrelaxError, code: error.code, message: error.message });
    """
    content = shard.read_bytes()
    shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    found = run(site, script)
    assert found["known"]
    assert found["code"] == "damaged-file"
    assert "weights-001.bin is damaged: its SHA-256 is not the one in manifest.json" in found["message"]
    shard.unlink()
    found = run(site, script)
    assert found["code"] == "missing-file"
    assert "weights-001.bin cannot be read" in found["message"]
    shutil.rmtree(site / "models")
    assert "manifest.json cannot be read" in run(site, script)["message"]


def test_other_targets_are_refused(tmp_path: Path) -> None:
    script = """
        const errors = [];
        for (const target of [null, "webgpu"])
          errors.push(await createEngine({ model, target }).catch(({ code, message }) => [code, message]));
        say(errors);
    """
    found = run(toy.build_toy_site(tmp_path / "site", targets=("webgpu",)), script)
    assert [code for code, _ in found] == ["options", "options"]
    assert all('Node runs the target "wasm"' in message for _, message in found)
