"""Compiles the VM: packaging/vm/*.cpp to web/vm.wasm, with emcc (any version from 3.1)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...compiler.emcc import run_emcc

_SOURCE = Path(__file__).resolve().parent
_ROOT = _SOURCE.parents[1]
OUTPUT = _ROOT / "web" / "vm.wasm"

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
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".vm-") as folder:
        made = Path(folder) / "vm.wasm"
        run_emcc([*_FLAGS, *map(str, sources), "-o", str(made)], "vm.wasm")
        made.replace(output)
    return True
