"""Runs Emscripten's compiler, for the VM and for kernels: any version from 3.1."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import WebrelaxError

_CACHE = Path(__file__).resolve().parents[1] / "build" / "emcache"
_UNWRITABLE = re.compile(r"permission denied|read-only file system|not writable", re.IGNORECASE)


def find_emcc() -> str | None:
    """The compiler's path: the environment's EMCC, else what is on PATH."""
    return os.environ.get("EMCC") or shutil.which("emcc")


def run_emcc(arguments: Sequence[str], what: str) -> None:
    """Compiles `what`, as messages call it. Raises WebrelaxError where emcc is missing or fails."""
    emcc = find_emcc()
    if emcc is None:
        raise WebrelaxError(
            f"building {what} needs emcc, which is not on PATH: install emscripten (on Debian: apt install emscripten)"
            " or set EMCC to its path"
        )
    try:
        result = _run([emcc, *arguments])
    except OSError as error:
        raise WebrelaxError(f"building {what} needs emcc, and {emcc} cannot be run: {error.strerror}") from error
    if result.returncode:
        raise WebrelaxError(f"emcc could not compile {what} (exit code {result.returncode}):\n{result.stderr.strip()}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs it. One that is installed for all users may want to write a cache beside itself: an ordinary user's second
    try puts the cache into build/. (Debian's is complete and frozen; pointing EM_CACHE elsewhere would break it.)"""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode and "EM_CACHE" not in os.environ and _UNWRITABLE.search(result.stderr):
        environment = {**os.environ, "EM_CACHE": str(_CACHE)}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result
