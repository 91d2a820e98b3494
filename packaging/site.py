"""The folder of a site: what in it is ours, and how a finished build gets there whole or not at all.

Whatever fails, and also when the process is told to end, the folder stays as it was; files that webrelax did not write
are never replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..compiler.errors import WebrelaxError

MODELS = "models.json"
_BUILT = re.compile(
    r"manifest\.json|module(-\w+)?\.bin|(kernels|program)-\w+\.(json|wasm)|weights-\d+\.bin"
    r"|tokenizer\.json|tokenizer_config\.json|generation_config\.json"
)


def check_output(site: Path, model: str, page: frozenset[str], force: bool) -> None:
    """Raises WebrelaxError where a build would replace what it must not; `page` are the files beside the models.

    Without `force` a folder of other files and a model that is there already are refused; with it, what is in the way
    and not ours.
    """
    if site.is_dir() and not _is_site(site):
        if not force and any(not p.name.startswith(".") for p in site.iterdir()):
            raise WebrelaxError(
                f"{site} holds other files than a site's: give another folder with -o, or --force to add to it"
            )
        for name in sorted(page | {MODELS, "models"}):
            if os.path.lexists(site / name):
                raise WebrelaxError(f"{site / name} is not webrelax's: move it, or give another folder with -o")
    folder = site / "models" / model
    if os.path.lexists(folder):
        if not force:
            raise WebrelaxError(f"{folder} exists already: give another --name, or --force to replace it")
        stranger = _stranger(folder)
        if stranger:
            raise WebrelaxError(f"{stranger} is not webrelax's: move it, or give another --name")


def _is_site(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (MODELS, "vm.wasm"))


def _stranger(folder: Path) -> Path | None:
    """Something in a model's folder that is not of a build, so that a damaged one can be built again."""
    if folder.is_symlink() or not folder.is_dir():
        return folder
    return next((p for p in sorted(folder.iterdir()) if not _BUILT.fullmatch(p.name)), None)


@contextlib.contextmanager
def workspace(site: Path) -> Iterator[Path]:
    """A folder on the file system of `site` for what is not finished; it vanishes with the block.

    Errors of the file system become WebrelaxErrors.
    """
    base = next(p for p in (site, *site.absolute().parents) if os.path.lexists(p))
    if not base.is_dir():
        raise WebrelaxError(f"{base} is no folder: give another one with -o")
    scratch = base / f".webrelax-{secrets.token_hex(8)}"
    try:  # around the making too: a request to end may come at any moment, and must leave nothing
        scratch.mkdir(0o700)
        yield scratch
    except OSError as error:
        raise WebrelaxError(f"cannot write {site}: {error.strerror or error}; nothing was left there") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def install(staged: Path, site: Path, model: str, page: frozenset[str], force: bool) -> None:
    """Moves the files of `staged`, a whole site with one model, into `site`: all of them or none."""
    attic = staged.with_name("attic")
    attic.mkdir()
    with contextlib.ExitStack() as undo:
        _make(site, undo)
        with _locked(site):  # two builds may end at the same time
            check_output(site, model, page, force)
            _make(site / "models", undo)
            for name in sorted(page):
                _make((site / name).parent, undo)
                _swap(staged / name, site / name, attic, undo)
            _swap(staged / "models" / model, site / "models" / model, attic, undo)
            models = sorted(p.parent.name for p in site.glob("models/*/manifest.json"))
            (staged / MODELS).write_text(json.dumps({"models": models}) + "\n")
            _swap(staged / MODELS, site / MODELS, attic, undo)
            undo.pop_all()


def _make(folder: Path, undo: contextlib.ExitStack) -> None:
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        undo.callback(_remove_if_empty, missing)
        missing.mkdir(exist_ok=True)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _swap(new: Path, target: Path, attic: Path, undo: contextlib.ExitStack) -> None:
    """Moves `new` to `target`, and what was there to the attic. To undo comes first: it must hold at every moment."""
    kept = attic / str(len(os.listdir(attic)))
    for source, destination in ((target, kept), (new, target)):
        if os.path.lexists(source):
            undo.callback(_move_back, destination, source)
            source.rename(destination)


def _move_back(moved: Path, origin: Path) -> None:
    if os.path.lexists(moved) and not os.path.lexists(origin):
        moved.rename(origin)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle: Any = None
    try:
        # Not everywhere: Windows has no fcntl, and some network file systems have no locks.
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)
