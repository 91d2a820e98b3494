from __future__ import annotations

import os
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.vm import build


@pytest.fixture
def fake_emcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An emcc that appends to a log and writes its output; tests put lines before that."""
    script = tmp_path / "emcc"
    monkeypatch.setenv("EMCC", str(script))
    monkeypatch.delenv("EM_CACHE", raising=False)
    write(script, "")
    return script


def write(script: Path, first: str) -> None:
    script.write_text(
        f'#!/bin/sh\necho run >> {script}.log\n{first}\nwhile [ "$1" != -o ]; do shift; done\necho wasm > "$2"\n'
    )
    script.chmod(0o755)


def runs(script: Path) -> int:
    log = Path(f"{script}.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_it_builds_once_and_again_when_older_than_its_sources(fake_emcc: Path, tmp_path: Path) -> None:
    output = tmp_path / "web" / "vm.wasm"
    assert [build(output), build(output)] == [True, False]
    os.utime(output, (1, 1))
    assert [build(output), build(output)] == [True, False]
    assert build(output, force=True)
    assert runs(fake_emcc) == 3


def test_a_missing_emcc_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMCC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WebrelaxError, match="needs emcc, which is not on PATH"):
        build(tmp_path / "vm.wasm")
    monkeypatch.setenv("EMCC", str(tmp_path / "nothing"))
    with pytest.raises(WebrelaxError, match="nothing cannot be run"):
        build(tmp_path / "vm.wasm")


def test_a_failure_leaves_the_old_file(fake_emcc: Path, tmp_path: Path) -> None:
    output = tmp_path / "site" / "vm.wasm"
    build(output)
    write(fake_emcc, "echo unknown flag >&2; exit 3")
    with pytest.raises(WebrelaxError, match=r"exit code 3\):\nunknown flag"):
        build(output, force=True)
    assert [path.name for path in output.parent.iterdir()] == ["vm.wasm"]
    assert output.read_text() == "wasm\n"


def test_a_cache_that_cannot_be_written_is_replaced(fake_emcc: Path, tmp_path: Path) -> None:
    write(fake_emcc, 'if [ -z "$EM_CACHE" ]; then echo "PermissionError: Permission denied: cache" >&2; exit 1; fi')
    assert build(tmp_path / "vm.wasm")
    assert runs(fake_emcc) == 2
