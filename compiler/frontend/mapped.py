"""Files as read-only views of their bytes: nothing is copied, and pages are read as they are used."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

from ..errors import WebrelaxError


def map_file(path: Path, expected: str) -> memoryview:
    """The bytes of the file at `path`, mapped. `expected` is what should be there, as in "a .gguf file".

    Raises WebrelaxError where there is no regular file, or an empty one, or one that cannot be read.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise WebrelaxError(f"{path}: this is a folder; give {expected}")
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
            raise WebrelaxError(f"{path}: this is not a regular file; give {expected}")
        if status.st_size == 0:
            raise WebrelaxError(f"{path}: the file is empty; download it again")
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise WebrelaxError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path, or a file emptied meanwhile
        reason = getattr(problem, "strerror", None) or problem
        raise WebrelaxError(f"{path}: the file cannot be read ({reason})") from None
