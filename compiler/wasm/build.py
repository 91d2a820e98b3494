"""C to a bare WebAssembly module, by Emscripten; with relaxed SIMD by Emscripten or clang, whichever can."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..emcc import find_emcc, run_emcc
from ..errors import WebrelaxError

FLAGS = (
    "-std=gnu11", "-O3", "-ffreestanding", "-fno-math-errno", "-ffp-contract=off", "-msimd128", "-mbulk-memory",
    "-mmutable-globals",
)  # fmt: skip
RELAXED = "-mrelaxed-simd"
# Each thread's instance of the module gets a stack of its own.
_EXPORTS = ("-Wl,--export=__heap_base", "-Wl,--export=__stack_pointer")
_EMCC = ("--no-entry", "-sSTANDALONE_WASM=1", "-sIMPORTED_MEMORY=1", "-sALLOW_MEMORY_GROWTH=1")
_MOST = 1 << 32
# Emscripten's release, and clang's, whose header has the instructions of the standard under their last names.
_OLDEST_EMCC, _CLANGS = (3, 1, 40), range(40, 17, -1)


def build_module(source: str) -> bytes:
    """The module of a C file, whose memory the host gives. Raises WebrelaxError where emcc is missing or refuses it."""
    return _compile(source, lambda file, made: _emcc(file, made, ()))


def build_relaxed_module(source: str) -> bytes | None:
    """The same with relaxed SIMD; None where no compiler is installed that knows it."""
    if (version := _emcc_version()) is not None and version >= _OLDEST_EMCC:
        return _compile(source, lambda file, made: _emcc(file, made, (RELAXED,)))
    if (clang := _find_clang()) is not None:
        return _compile(source, lambda file, made: _clang(*clang, file, made))
    return None


def _compile(source: str, run: Callable[[Path, Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "kernels.c", Path(folder) / "kernels.wasm"
        file.write_text(source, "utf-8")
        run(file, made)
        return made.read_bytes()


def _emcc(file: Path, made: Path, more: tuple[str, ...]) -> None:
    run_emcc([*FLAGS, *more, *_EMCC, f"-sMAXIMUM_MEMORY={_MOST}", *_EXPORTS, str(file), "-o", str(made)], "the kernels")


def _clang(clang: str, linker: str, file: Path, made: Path) -> None:
    link = ("-nostdlib", "-Wl,--no-entry", "-Wl,--import-memory", f"-Wl,--max-memory={_MOST}", *_EXPORTS)
    target = ("--target=wasm32-unknown-unknown", f"-fuse-ld={linker}", "--no-wasm-opt")
    command = [clang, *target, *FLAGS, RELAXED, *link, str(file), "-o", str(made)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise WebrelaxError(f"{clang} could not compile the kernels (exit code {result.returncode}): {result.stderr}")


def _emcc_version() -> tuple[int, ...] | None:
    emcc = find_emcc()
    if emcc is None:
        return None
    try:
        printed = subprocess.run([emcc, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", printed)
    return tuple(map(int, found.groups())) if found else None


def _find_clang() -> tuple[str, str] | None:
    """The newest installed clang with its linker, as Debian names them."""
    for version in _CLANGS:
        clang, linker = shutil.which(f"clang-{version}"), shutil.which(f"wasm-ld-{version}")
        if clang and linker:
            return clang, linker
    return None
