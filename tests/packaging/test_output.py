"""Where `webrelax build` writes: what it leaves when it fails or is told to end, and what it never replaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from webrelax.packaging.cli import main

from ..compiler.frontend.small_gguf import small_llama

CLI = (sys.executable, "-P", "-m", "webrelax.packaging.cli")
SIZES = ("--context", "32", "--prefill-chunk", "8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


def build(model: Path, output: Path, *more: str) -> int:
    return main(["build", str(model), "-o", str(output), *SIZES, *more])


def files(folder: Path) -> dict[str, bytes]:
    """Everything below a folder; links and empty folders count."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"-" for p in sorted(folder.rglob("*"))}


def refused(capsys: pytest.CaptureFixture[str], root: Path, model: Path, output: Path, *more: str) -> str:
    """The one line of a build that fails and leaves everything below `root` as it was."""
    before = files(root)
    capsys.readouterr()
    assert build(model, output, *more) == 2
    printed = capsys.readouterr()
    assert (printed.out, files(root)) == ("", before)
    (line,) = printed.err.splitlines()
    return line


def test_files_in_the_way(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for output in ("file", "file/site", "dangling"):
        line = refused(capsys, tmp_path, model, tmp_path / output)
        assert "is no folder: give another one with -o" in line
    assert "is no folder" in refused(capsys, tmp_path, model, model / "site")


def test_a_folder_of_other_files(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "--force to add to it" in refused(capsys, tmp_path, model, tmp_path)
    (tmp_path / "index.html").write_text("mine")
    assert "index.html is not webrelax's" in refused(capsys, tmp_path, model, tmp_path, "--force")
    (tmp_path / "index.html").unlink()
    (tmp_path / "models").mkdir()
    assert "models is not webrelax's" in refused(capsys, tmp_path, model, tmp_path, "--force")
    (tmp_path / "models").rmdir()
    assert build(model, tmp_path, "--force") == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "models/tiny/manifest.json").is_file()


def test_force_replaces_models_only(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, built = tmp_path / "site", tmp_path / "site/models/tiny"
    assert build(model, site) == 0
    (built / "mine.txt").write_text("mine")
    assert "mine.txt is not webrelax's" in refused(capsys, tmp_path, model, site, "--force")
    (built / "mine.txt").unlink()
    (built / "manifest.json").unlink()  # a damaged build is still ours
    assert build(model, site, "--force") == 0
    built.rename(tmp_path / "elsewhere")
    built.symlink_to(tmp_path / "elsewhere")
    assert "tiny is not webrelax's" in refused(capsys, tmp_path, model, site, "--force")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../up", "up"),
        ("a/b c\n", "a-b-c"),
        ("é" + "x" * 500, "x" * 79),
        ("模型", None),
        ("", None),
        ("..", None),
    ],
)
def test_names(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, folder: str | None) -> None:
    if folder is None:
        assert "give --name" in refused(capsys, tmp_path, model, tmp_path / "site", "--name", name)
    else:
        assert build(model, tmp_path / "site", "--name", name) == 0
        assert [p.name for p in (tmp_path / "site/models").iterdir()] == [folder]


def test_a_template_that_the_page_could_not_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small_llama(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": "{% for"})
    assert "m.gguf: the model's chat template fails" in refused(capsys, tmp_path, path, tmp_path / "site")
    path = small_llama(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": ""})
    assert build(path, tmp_path / "site") == 0


def limited(kilobytes: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command that cannot write larger files, as on a disk that is full."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kilobytes", [20, 115])  # the page does not fit; a file of the model does not
def test_a_disk_that_is_full(model: Path, tmp_path: Path, kilobytes: int) -> None:
    metadata = {f"general.filler{n}": "x" * 1000 for n in range(10)}
    large = small_llama(tmp_path / "large.gguf", metadata=metadata)
    assert build(model, tmp_path / "old") == 0
    before = files(tmp_path)
    for output, more in (("new/site", ()), ("old", ("--force", "--name", "tiny"))):
        command = (*CLI, "build", str(large), "-o", str(tmp_path / output), *SIZES, *more)
        done = limited(kilobytes, command)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.endswith("File too large; nothing was left there")
        assert files(tmp_path) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_end(model: Path, tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of the work, when the scratch folder is there."""
    command = (*CLI, "build", str(model), "-o", str(tmp_path / "new/site"), *SIZES)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 30
        while not any(tmp_path.iterdir()) and time.monotonic() < until:
            time.sleep(0.002)
        assert any(tmp_path.iterdir())
        process.send_signal(number)
        printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (128 + number, ("", ""))
    assert list(tmp_path.iterdir()) == []


def test_builds_at_the_same_time(model: Path, tmp_path: Path) -> None:
    names = ("a", "b", "b")
    running = [
        subprocess.Popen(
            (*CLI, "build", str(model), "-o", str(tmp_path / "site"), "--name", name, *SIZES),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    assert sorted(process.wait(timeout=60) for process in running) == [0, 0, 2]
    assert json.loads((tmp_path / "site/models.json").read_text()) == {"models": ["a", "b"]}
    assert main(["inspect", str(tmp_path / "site"), "--model", "b"]) == 0
    assert [p.name for p in tmp_path.rglob(".*")] == []
    assert os.listdir(tmp_path) == ["site"]
