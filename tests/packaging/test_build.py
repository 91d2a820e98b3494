"""`webrelax build`: what it writes, that it writes the same twice, and what it says of files it cannot build."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from webrelax.packaging.bundle import SHARD_BYTES
from webrelax.packaging.cli import main

from ..compiler.frontend.small_gguf import small_llama


def digest(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_two_builds_are_the_same(smollm2_site: Path, smollm2_path: Path, tmp_path: Path) -> None:
    assert main(["build", str(smollm2_path), "-o", str(tmp_path / "again")]) == 0
    assert digest(tmp_path / "again") == digest(smollm2_site)


def test_the_manifest_lists_every_file(smollm2_site: Path) -> None:
    (folder,) = (smollm2_site / "models").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    names = {p.name for p in folder.iterdir()} - {"manifest.json"}
    assert set(manifest["files"]) == names
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert len(content) <= SHARD_BYTES
    assert json.loads((smollm2_site / "models.json").read_text()) == {"models": [folder.name]}
    assert not any(p.name.startswith(".") or p.suffix == ".py" for p in smollm2_site.rglob("*"))


def test_weights_come_back_from_the_shards(smollm2_site: Path, smollm2_path: Path) -> None:
    from webrelax.compiler.frontend.load import load_gguf
    from webrelax.packaging.reader import open_bundle

    _, loaded = load_gguf(smollm2_path)
    stored = open_bundle(smollm2_site).weights()
    assert set(stored) == set(loaded.weights)
    for name, read in loaded.weights.items():
        assert stored[name].tobytes() == read().tobytes(), name


def refused(capsys: pytest.CaptureFixture[str], model: Path, site: Path) -> str:
    """The one line that a build prints for a model that it refuses; nothing is left behind."""
    before = sorted(site.parent.iterdir())
    assert main(["build", str(model), "-o", str(site)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("webrelax: ")
    assert "Traceback" not in line
    assert sorted(site.parent.iterdir()) == before
    assert not site.exists()
    return line


def test_files_that_are_no_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "out" / "site"
    site.parent.mkdir()
    assert "missing.gguf" in refused(capsys, tmp_path / "missing.gguf", site)
    for name, content in {
        "empty": b"",
        "zip": b"PK\x03\x04" + bytes(100),
        "text": b"hello, this is no model\n",
    }.items():
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        assert name in refused(capsys, path, site)


@pytest.mark.parametrize("part", range(10))
def test_truncated_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], part: int) -> None:
    whole = small_llama(tmp_path / "model.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) * part // 10 + 3])
    site = tmp_path / "out" / "site"
    site.parent.mkdir()
    assert "cut.gguf" in refused(capsys, cut, site)


def test_absurd_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = bytearray(small_llama(tmp_path / "model.gguf").read_bytes())
    site = tmp_path / "out" / "site"
    site.parent.mkdir()
    for offset in (8, 16):  # numbers of tensors and of metadata
        damaged = bytearray(whole)
        struct.pack_into("<Q", damaged, offset, 1 << 60)
        path = tmp_path / f"absurd{offset}.gguf"
        path.write_bytes(damaged)
        assert f"absurd{offset}" in refused(capsys, path, site)


def test_what_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "out" / "site"
    site.parent.mkdir()
    line = refused(capsys, small_llama(tmp_path / "a.gguf", architecture="mamba"), site)
    assert "mamba" in line
    assert "llama" in line
    line = refused(capsys, small_llama(tmp_path / "b.gguf", weight_type="IQ2_XXS"), site)
    assert "IQ2_XXS" in line
    assert "Q4_1" in line
    line = refused(capsys, small_llama(tmp_path / "c.gguf", without="blk.0.ffn_up.weight"), site)
    assert "blk.0.ffn_up.weight" in line


def test_a_small_model_builds_and_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, site = small_llama(tmp_path / "tiny.gguf"), tmp_path / "site"
    command = ["build", str(model), "-o", str(site), "--context", "64", "--prefill-chunk", "16"]
    assert main(command) == 0
    first = digest(site)
    capsys.readouterr()
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert digest(site) == first
    assert main([*command, "--force"]) == 0
    assert digest(site) == first
    assert main([*command[:4], "--context", "9999"]) == 2
