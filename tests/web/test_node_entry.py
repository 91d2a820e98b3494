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


def build_toy_site(folder: Path, **options: Any) -> Path:
    sys.path.append(str(ROOT))  # for e2e/
    try:
        from e2e import toy
    finally:
        sys.path.pop()
    site = toy.build_toy_site(folder, **options)
    # What a user's package.json says: the files are ES modules.
    (site / "package.json").write_text('{"type": "module"}')
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_toy_site(tmp_path_factory.mktemp("node") / "site", context=1024)


def run(site: Path, body: str) -> Any:
    """What the script writes as its last line, as JSON. It must end by itself."""
    script = site / "script.js"
    script.write_text(
        'import { createEngine, WebrelaxError } from "./node.js";\nconst model = "models/Toy-1";\n' + body
    )
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
        for await (const {{ choices: [{{ delta }}] }} of engine.chat.completions.create({{ messages, temperature: 0, stream: true }}))
          text += delta.content;
        const {{ info }} = engine;
        console.log(JSON.stringify({{ whole: answer.choices[0].message.content, text, info, phases: [...phases] }}));
        """,
    )
    from e2e.toy import ANSWER

    assert found["whole"] == found["text"] == ANSWER
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
        const codeOf = (promise) => promise.then(() => "none", (error) => error.code ?? String(error));
        const stopping = new AbortController();
        let ticks = 0;
        const timer = setInterval(() => ticks++, 1);
        let seen = 0;
        const read = async () => {
          const stream = engine.completions.create({ prompt: "Hello", ignore_eos: true, stream: true, signal: stopping.signal });
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
        console.log(JSON.stringify({ aborted, seen, second, tokens: usage.completion_tokens, ticks, ends: [await running, after] }));
        """,
    )
    assert found["ticks"] > 0
    assert (found["aborted"], found["seen"], found["second"], found["tokens"]) == ("aborted", 5, "busy", 5)
    assert found["ends"] == ["disposed", "disposed"]


def test_files_are_checked(tmp_path: Path) -> None:
    site = build_toy_site(tmp_path / "site")
    shard = site / "models/Toy-1/weights-001.bin"
    script = """
        const error = await createEngine({ model }).catch((error) => error);
        console.log(JSON.stringify({ known: error instanceof WebrelaxError, code: error.code, message: error.message }));
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
        const codeOf = (promise) => promise.then(() => "none", (error) => [error.code, error.message]);
        console.log(JSON.stringify([await codeOf(createEngine({ model })), await codeOf(createEngine({ model, target: "webgpu" }))]));
    """
    found = run(build_toy_site(tmp_path / "site", targets=("webgpu",)), script)
    assert [code for code, _ in found] == ["options", "options"]
    assert all('Node runs the target "wasm"' in message for _, message in found)
