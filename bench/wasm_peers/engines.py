"""The engines that are compared: each in a tab of one Chromium, and llama.cpp as a process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.wasm_peers.figures import Turn
from webrelax.compiler.errors import WebrelaxError

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PEERS = ROOT / "build" / "peers"
PACKAGES = PEERS / "node_modules"
PYTHON = PEERS / "venv" / "bin" / "python"


@dataclass(frozen=True)
class Prompt:
    """Token ids, and the text that is just these."""

    ids: list[int]
    text: str


@dataclass(frozen=True)
class Task:
    """What every engine answers: a prompt, and the tokens to follow it. `opening` is the prompt after a reload."""

    prompt: Prompt
    tokens: int
    opening: Prompt

    def turn(self, found: dict[str, Any]) -> Turn:
        return Turn.of(len(self.prompt.ids), found["first"], found["last"], found["ids"])


class Engine(Protocol):
    """An engine that is loaded. All of it raises WebrelaxError where the engine fails."""

    version: str

    def turn(self) -> Turn:
        """Answers once."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Peer:
    """A peer in the browser: its module here, its npm package, and its model's path from the root."""

    name: str
    module: str
    package: str
    model: str
    reloads: bool = False

    def version(self) -> str:
        """Its package's. Raises WebrelaxError where it, or its model, is not installed."""
        description = PACKAGES / self.package / "package.json"
        for path in (description, ROOT / self.model):
            if not path.exists():
                raise WebrelaxError(f"{path} does not exist: `make bench-wasm` installs what is compared")
        return str(json.loads(description.read_text())["version"])


def peers(gguf: str) -> tuple[Peer, ...]:
    """Those of a GGUF file, given by its path from the root."""
    return (
        Peer("wllama2", "wllama2", "wllama2", gguf, reloads=True),
        Peer("wllama3", "wllama3", "wllama3", gguf, reloads=True),
        Peer("onnxruntime-fp32", "onnxruntime", "onnxruntime-web", "build/peers/onnx/fp32/"),
        Peer("onnxruntime-q8", "onnxruntime", "onnxruntime-web", "build/peers/onnx/q8/"),
    )


class Tab:
    """An engine in a page of its own, which may show anything: measure.js and the engine's module run in it."""

    def __init__(
        self, context: BrowserContext, name: str, page: str, module: str, options: dict[str, Any], task: Task
    ) -> None:
        self.name, self.task = name, task
        self._engine = [(HERE / f"{module}.js").read_text(), options]
        self._page = context.new_page()
        self._page.goto(page)
        self.version = str(self._ask("load", *self._engine))

    def _ask(self, function: str, *arguments: Any) -> Any:
        from playwright.sync_api import Error

        try:
            return self._page.evaluate(f"given => bench.{function}(...given)", arguments)
        except Error as error:
            raise WebrelaxError(f"{self.name} failed in its page: {error.message.splitlines()[0]}") from error

    def turn(self) -> Turn:
        return self.task.turn(self._ask("turn", asdict(self.task.prompt), self.task.tokens))

    def reload(self) -> float:
        """Loads page and engine again; seconds from there to the first token after the opening."""
        self._page.reload()
        return float(self._ask("firstToken", *self._engine, asdict(self.task.opening)))

    def close(self) -> None:
        self._page.close()


class Native:
    """llama.cpp, as a process."""

    def __init__(self, gguf: Path, threads: int, task: Task) -> None:
        self.task = task
        ids = ",".join(map(str, task.prompt.ids))
        command = (PYTHON, HERE / "native.py", gguf, threads, task.tokens, ids)
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.version = str(self._hear()["version"])

    @staticmethod
    def installed() -> bool:
        return any(PEERS.glob("venv/lib/python*/site-packages/llama_cpp"))

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise WebrelaxError("llama.cpp failed: see its message above")
        found: dict[str, Any] = json.loads(line)
        return found

    def turn(self) -> Turn:
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        return self.task.turn(self._hear())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def chromium() -> Iterator[tuple[BrowserContext, str]]:
    """A browser that stores what pages store on the disk, as a visitor's does, and its version."""
    from playwright.sync_api import sync_playwright

    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from e2e.chromium import FLAGS, executable

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as playwright:
        browser = playwright.chromium
        context = browser.launch_persistent_context(profile, executable_path=executable(), args=list(FLAGS))
        try:
            context.add_init_script(path=HERE / "measure.js")
            version = context.browser.version if context.browser else ""
            yield context, version
        finally:
            context.close()
