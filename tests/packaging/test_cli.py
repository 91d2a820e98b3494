"""The command line: what it accepts, and how it fails."""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging import __version__
from webrelax.packaging.cli import main

COMMANDS = ("build", "serve", "check", "generate", "perplexity", "inspect")

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
        ["generate", "site", "hi", "--seed", "-1"],
        ["generate", "site", "hi", "--seed", str(2**53)],
        ["generate", "site", "hi", "--max-tokens", "9" * 5000],
        ["generate", "site", "a\udcffb"],
        ["generate", "site", "hi", "--top-p", "0"],
        ["serve", "site", "--port", "65536"],
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "webrelax" in error
    assert "_" not in error  # no name of the program's own


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
        (WebrelaxError("a\n  b \x1b[2J\udcff"), 2, "webrelax: a b \\x1b[2J\\udcff\n"),
        (OSError(28, "No space left on device"), 2, "webrelax: stdout: No space left on device\n"),
        (MemoryError(), 2, "webrelax: there is not enough memory"),
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


def command(code: str, shell: str = '"$@"') -> subprocess.CompletedProcess[str]:
    """Runs `check` with this body; the shell may change its streams."""
    program = f"""
import os, signal, sys, types
def run(args):
{textwrap.indent(textwrap.dedent(code), "    ")}
    return 0
module = types.ModuleType("webrelax.packaging.check")
module.run = run
sys.modules[module.__name__] = module
from webrelax.packaging.cli import main
sys.exit(main(["check", "site"]))
"""
    return subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_closed_streams() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&- <&-"):
        done = command("print('x'); print('y', file=sys.stderr)", f'"$@" {closed}')
        assert done.returncode == 0
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout() -> None:
    done = command("print('x' * 100000)", '"$@" >/dev/full')
    assert (done.returncode, done.stderr) == (2, "webrelax: stdout: No space left on device\n")


def test_text_that_the_terminal_cannot_show() -> None:
    done = command("print('日')", 'PYTHONIOENCODING=ascii "$@"')
    assert (done.returncode, done.stdout) == (0, "\\u65e5\n")


def test_a_command_that_is_told_to_end_tidies_up() -> None:
    done = command("""
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                pass
        finally:
            print("tidy")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (143, "tidy\n", "")
