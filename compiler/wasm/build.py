"""C to a bare WebAssembly module."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..emcc import run_emcc

FLAGS = (
    "-std=gnu11", "-O3", "-ffreestanding", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wno-unused", "-Werror",
    "-msimd128", "-mbulk-memory", "-mmutable-globals",
)  # fmt: skip
LINK = (
    "--no-entry",
    "-sSTANDALONE_WASM=1",
    "-sIMPORTED_MEMORY=1",
    "-sALLOW_MEMORY_GROWTH=1",
    "-Wl,--export=__heap_base",
    "-Wl,--export=__stack_pointer",  # each thread's instance gets a stack of its own
)


def build_module(source: str) -> bytes:
    """The module of a C file, whose memory the host gives. Raises WebrelaxError where emcc is missing or refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "kernels.c", Path(folder) / "kernels.wasm"
        file.write_text(source, "utf-8")
        run_emcc([*FLAGS, *LINK, str(file), "-o", str(made)], "the kernels")
        return made.read_bytes()
