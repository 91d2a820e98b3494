"""What `webrelax build` makes for which targets, and what it says where the CPU's compiler is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from webrelax.packaging.cli import main

from ..compiler.frontend.small_gguf import small_llama

CPU_PART = "the CPU part, beside the weights: "
NOTE = "without a CPU part: install emscripten (emcc) and build again for visitors who have no WebGPU"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_llama(tmp_path / "small.gguf")


@pytest.fixture
def no_emcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("EMCC", raising=False)


def targets_of(site: Path) -> list[str]:
    (folder,) = (site / "models").iterdir()
    return list(json.loads((folder / "manifest.json").read_text())["targets"])


@pytest.mark.usefixtures("no_emcc")
def test_without_emcc_a_site_has_no_cpu_part(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(model), "-o", str(tmp_path / "site")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [NOTE]
    assert targets_of(tmp_path / "site") == ["webgpu"]


@pytest.mark.usefixtures("no_emcc")
def test_who_asks_for_webgpu_alone_reads_no_note(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(model), "-o", str(tmp_path / "site"), "--targets", "webgpu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.usefixtures("no_emcc")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--targets", "wasm"], "needs emcc, which is not on PATH: install emscripten"),
        (["--targets", "webgpu,wasm"], "needs emcc, which is not on PATH: install emscripten"),
        (["--exact"], "--exact is about the CPU, which this build is not for: leave it out, or add the target wasm"),
        (["--exact", "--targets", "webgpu"], "--exact is about the CPU, which this build is not for"),
    ],
)
def test_what_needs_emcc_is_refused_without_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["build", str(model), "-o", str(tmp_path / "site"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "site").exists()


def test_an_emcc_that_cannot_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMCC", str(tmp_path / "none"))
    assert main(["build", str(model), "-o", str(tmp_path / "site")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'none'} cannot be run: No such file or directory" in line
    assert not (tmp_path / "site").exists()


@pytest.mark.skipif(shutil.which("emcc") is None, reason="needs emcc")
def test_with_emcc_both_are_built_and_the_cpu_part_is_reported(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(model), "-o", str(tmp_path / "site")]) == 0
    (_, line) = capsys.readouterr().out.splitlines()
    size = float(line.removeprefix(CPU_PART).removesuffix(" MiB"))
    assert targets_of(tmp_path / "site") == ["webgpu", "wasm"]
    (folder,) = (tmp_path / "site/models").iterdir()
    kernels = max(path.stat().st_size for path in folder.glob("kernels-*.wasm"))
    assert size == pytest.approx((kernels + (folder / "module-wasm.bin").stat().st_size) / 2**20, abs=0.005)
