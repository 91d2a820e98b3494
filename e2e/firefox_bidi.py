"""Headless Firefox over WebDriver BiDi, with WebGPU on: a second browser engine for the end-to-end tests.

Playwright cannot drive a distribution's Firefox; Firefox itself speaks BiDi. WebGPU then runs on the software Vulkan
driver, at WebGPU's default limits.

    with firefox() as page:
        page.goto("http://127.0.0.1:8000/")
        print(page.evaluate("(await navigator.gpu.requestAdapter()).limits.maxStorageBufferBindingSize"))
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PREFERENCES = (
    "dom.webgpu.enabled",
    "dom.webgpu.workers.enabled",
    "gfx.webgpu.ignore-blocklist",
    "gfx.webrender.software",
)


def executable() -> str | None:
    """$WEBRELAX_FIREFOX, or the system's Firefox; None if there is none that can be driven."""
    # A snap is confined: it cannot use the profile that is made for it here.
    names = ("firefox-esr",) if Path("/snap/bin/firefox").exists() else ("firefox-esr", "firefox")
    return os.environ.get("WEBRELAX_FIREFOX") or next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def firefox(binary: str | None = None, timeout_s: float = 60.0) -> Iterator[FirefoxPage]:
    """The one tab of a running browser, for the length of the block. Commands wait at most `timeout_s` seconds each."""
    binary = binary or executable()
    if binary is None:
        raise RuntimeError("no Firefox is installed")
    # It may still write to its profile while it ends.
    with tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as profile:
        Path(profile, "user.js").write_text("".join(f'user_pref("{name}", true);\n' for name in PREFERENCES))
        command = [binary, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port=0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                with connect(_address(process, timeout_s) + "/session", max_size=None) as socket:
                    yield FirefoxPage(socket, timeout_s)
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()


def _address(process: subprocess.Popen[str], timeout_s: float) -> str:
    assert process.stderr
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    try:
        for line in process.stderr:
            if match := re.search(r"WebDriver BiDi listening on (ws://\S+)", line):
                # What it says later must be read too: a full pipe would stop it.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return match[1]
    finally:
        watchdog.cancel()
    raise RuntimeError("Firefox ended without opening a BiDi port")


class FirefoxPage:
    """One tab, by BiDi commands over `socket`."""

    def __init__(self, socket: ClientConnection, timeout_s: float) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self.call("session.new", capabilities={})
        self._context = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method: str, timeout_s: float | None = None, **params: Any) -> dict[str, Any]:
        """Sends one BiDi command and returns its result; raises RuntimeError with the browser's message."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=timeout_s or self._timeout_s))
            if message.get("id") != number:
                continue
            if message["type"] == "error":
                raise RuntimeError(f"{method}: {message['message']}")
            result: dict[str, Any] = message["result"]
            return result

    def goto(self, url: str) -> None:
        self.call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, expression: str, timeout_s: float | None = None) -> Any:
        """The JSON value of a JavaScript expression, which may use `await`."""
        result = self.call(
            "script.evaluate",
            timeout_s,
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            awaitPromise=True,
            target={"context": self._context},
        )
        if result["type"] == "exception":
            raise RuntimeError(result["exceptionDetails"]["text"])
        value = result["result"].get("value")
        return None if value is None else json.loads(value)
