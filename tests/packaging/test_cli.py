"""The command line: what it accepts, and how it fails."""

from __future__ import annotations

import argparse
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging import __version__
from webrelax.packaging.cli import main

COMMANDS = ("build", "serve", "check", "generate", "inspect")

Stub = Callable[[argparse.Namespace], int]


@pytest.fixture
def command_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Stub], None]:
    """Puts a function in a command's place."""

    def put(name: str, run: Stub) -> None:
        module = types.ModuleType(f"webrelax.packaging.{name}")
        vars(module)["run"] = run
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return put


def raising(error: BaseException) -> Stub:
    def run(_: argparse.Namespace) -> int:
        raise error

    return run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"webrelax {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_argument(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "usage: webrelax " + command in capsys.readouterr().out


def test_arguments_reach_the_command(command_is: Callable[[str, Stub], None]) -> None:
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return 0

    for command in COMMANDS:
        command_is(command, run)
    assert main(["build", "m.gguf", "-o", "site"]) == 0
    assert (
        main(["generate", "site", "hi", "--max-tokens", "3", "--temperature", "0", "--top-logits", "20", "--json"]) == 0
    )
    assert main(["inspect", "site", "--pass", "fuse_ops"]) == 0
    assert main(["check", "site", "--kernel", "*matmul*"]) == 0
    build, generate, inspect, check = seen
    assert (build.model, build.output, build.name, build.context) == (Path("m.gguf"), Path("site"), None, None)
    assert (build.prefill_chunk, build.force) == (128, False)
    assert (generate.prompt, generate.max_tokens, generate.temperature) == ("hi", 3, 0.0)
    assert (generate.top_logits, generate.json, generate.raw, generate.interpreter) == (20, True, False, False)
    assert inspect.after == "fuse_ops"
    assert check.kernel == "*matmul*"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["build", "m.gguf"],
        ["build", "m.gguf", "-o", "site", "--context", "0"],
        ["build", "m.gguf", "-o", "site", "--context", "many"],
        ["generate", "site", "hi", "--temperature", "-1"],
        ["generate", "site", "hi", "--temperature", "nan"],
        ["generate", "site", "hi", "--top-p", "0"],
        ["serve", "site", "--port", "65536"],
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "webrelax" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (WebrelaxError("the model is damaged"), 2, "webrelax: the model is damaged\n"),
        (ModuleNotFoundError("no", name="wgpu"), 2, "webrelax: this needs the Python package wgpu: pip install"),
        (
            FileNotFoundError(2, "No such file or directory", "m.gguf"),
            2,
            "webrelax: m.gguf: No such file or directory\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_failures_are_one_line(
    error: BaseException,
    code: int,
    message: str,
    command_is: Callable[[str, Stub], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command_is("check", raising(error))
    assert main(["check", "site"]) == code
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert told.count("\n") == (1 if message else 0)


def test_a_defect_keeps_its_traceback(command_is: Callable[[str, Stub], None]) -> None:
    command_is("check", raising(ModuleNotFoundError("no", name="some_typo")))
    with pytest.raises(ModuleNotFoundError):
        main(["check", "site"])


def test_a_reader_that_leaves_makes_no_noise() -> None:
    code = (
        "import sys, types; module = types.ModuleType('webrelax.packaging.check')\n"
        "module.run = lambda args: [print('x' * 100) for _ in range(10000)] and 0\n"
        "sys.modules[module.__name__] = module\n"
        "from webrelax.packaging.cli import main; sys.exit(main(['check', 'site']))"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
