"""Compiles the VM: packaging/vm/*.cpp to web/vm.wasm, with emcc (any version from 3.1)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ...compiler.errors import WebrelaxError

_SOURCE = Path(__file__).resolve().parent
_ROOT = _SOURCE.parents[1]
OUTPUT = _ROOT / "web" / "vm.wasm"
_UNWRITABLE = re.compile(r"permission denied|read-only file system|not writable", re.IGNORECASE)

_FLAGS = (
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-ffreestanding",
    "-fno-exceptions",
    "-fno-rtti",
    "-mbulk-memory",
    "--no-entry",
    "-sSTANDALONE_WASM=1",
    "-sALLOW_MEMORY_GROWTH=1",
    "-sINITIAL_MEMORY=16777216",
)


def build(output: Path = OUTPUT, *, force: bool = False) -> bool:
    """Writes the VM to `output` where it is missing or older than its sources; says whether it had to.

    Raises WebrelaxError where emcc is missing or fails.
    """
    sources = sorted(_SOURCE.glob("*.cpp"))
    inputs = [*sources, *_SOURCE.glob("*.h"), Path(__file__)]
    if not force and output.exists() and output.stat().st_mtime >= max(path.stat().st_mtime for path in inputs):
        return False
    emcc = os.environ.get("EMCC") or shutil.which("emcc")
    if emcc is None:
        raise WebrelaxError(
            "building vm.wasm needs emcc, which is not on PATH: install emscripten (on Debian: apt install emscripten)"
            " or set EMCC to its path"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".vm-") as folder:
        made = Path(folder) / "vm.wasm"
        result = _run([emcc, *_FLAGS, *map(str, sources), "-o", str(made)])
        if result.returncode:
            raise WebrelaxError(
                f"emcc could not compile the VM (exit code {result.returncode}):\n{result.stderr.strip()}"
            )
        made.replace(output)
    return True


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs emcc. One that is installed for all users may want to write a cache beside itself: an ordinary user's second
    try puts the cache into build/. (Debian's is complete and frozen; pointing EM_CACHE elsewhere would break it.)"""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode and "EM_CACHE" not in os.environ and _UNWRITABLE.search(result.stderr):
            environment = {**os.environ, "EM_CACHE": str(_ROOT / "build" / "emcache")}
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise WebrelaxError(f"building vm.wasm needs emcc, and {command[0]} cannot be run: {error.strerror}") from error
    return result
