"""C to a bare WebAssembly module: emcc, or clang with its own linker."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..errors import WebrelaxError

FLAGS = (
    "-std=gnu11", "-O3", "-ffreestanding", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wno-unused", "-Werror",
    "-msimd128", "-mbulk-memory",
)  # fmt: skip
LINK = (
    "--no-entry",
    "-sSTANDALONE_WASM=1",
    "-sIMPORTED_MEMORY=1",
    "-sALLOW_MEMORY_GROWTH=1",
    "-Wl,--export=__heap_base",
)


def build_module(source: str) -> bytes:
    """The module of a C file, whose memory the host gives. Raises WebrelaxError where emcc is missing or refuses it."""
    emcc = os.environ.get("EMCC") or shutil.which("emcc")
    if emcc is None:
        raise WebrelaxError("the wasm target needs emcc: install emscripten, or leave the target out")
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "kernels.c", Path(folder) / "kernels.wasm"
        file.write_text(source, "utf-8")
        command = [emcc, *FLAGS, *LINK, str(file), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise WebrelaxError(f"emcc could not compile the kernels:\n{result.stderr.strip()}")
        return made.read_bytes()
