"""Writes a model's folder of a site; docs/bundle-format.md describes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..compiler.errors import WebrelaxError
from ..compiler.executable import Argument, EntryPoint, Executable
from ..compiler.target import Target
from ..compiler.vm import encode
from . import __version__
from .stored import program_file

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FORMAT = 3
SHARD_BYTES = 24 << 20
ALIGNMENT = 256


@dataclass(frozen=True)
class ModelInfo:
    """What the manifest says of the model."""

    name: str
    architecture: str
    context: int
    prefill_chunk: int
    vocabulary: int


@dataclass(frozen=True)
class Profile:
    """The kernels of a target for devices that have `features`, as the content of the file `kernels-NAME.ENDING`."""

    name: str
    features: tuple[str, ...]
    ending: Literal["json", "wasm"]
    kernels: bytes

    @property
    def file(self) -> str:
        return f"kernels-{self.name}.{self.ending}"


@dataclass(frozen=True)
class TargetBuild:
    """A model compiled for a target: the profiles share its program."""

    target: Target
    executable: Executable
    profiles: tuple[Profile, ...]


def write_bundle(
    folder: Path,
    builds: Sequence[TargetBuild],
    info: ModelInfo,
    weights: Mapping[str, Callable[[], Array]],
    extra_files: Mapping[str, bytes],
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Writes all files into an empty folder and returns the manifest. `progress` is called with bytes written.

    `weights` gives each weight buffer's array, which the targets share; `extra_files` are the tokenizer's. The same
    input gives the same bytes.
    """
    files = dict(extra_files)
    for build in builds:
        name = build.target.name
        files |= {profile.file: profile.kernels for profile in build.profiles}
        files[f"module-{name}.bin"] = encode(build.executable.bytecode)
        files[f"program-{name}.json"] = as_json(program_file(build.executable, build.target))
    listed: dict[str, dict[str, Any]] = {}
    for name, content in sorted(files.items()):
        (folder / name).write_bytes(content)
        listed[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    shards = _ShardWriter(folder, progress)
    placed = {name: {"size": size, "parts": shards.add(weights[name](), size)} for name, size in _sizes(builds).items()}
    listed |= shards.finish()
    manifest = {
        "format": FORMAT,
        "webrelax": __version__,
        "name": info.name,
        "model": {
            "architecture": info.architecture,
            "context": info.context,
            "prefill_chunk": info.prefill_chunk,
            "vocab": info.vocabulary,
        },
        "files": dict(sorted(listed.items())),
        "weights": placed,
        "targets": {build.target.name: _target(build) for build in builds},
    }
    (folder / "manifest.json").write_bytes(as_json(manifest))
    return manifest


def _sizes(builds: Sequence[TargetBuild]) -> dict[str, int]:
    """Bytes of each weight that a target uses, in the order of the first target's buffers."""
    return {b.name: b.size for build in builds for b in build.executable.buffers if b.kind == "weight"}


def _target(build: TargetBuild) -> dict[str, Any]:
    executable = build.executable
    used = executable.bytecode.row_slots * 4
    shared = {"module": f"module-{build.target.name}.bin", "program": f"program-{build.target.name}.json"}
    return {
        "profiles": {p.name: {"features": list(p.features), "kernels": p.file, **shared} for p in build.profiles},
        "buffers": [{"name": b.name, "kind": b.kind, "size": b.size} for b in executable.buffers],
        "binding_sets": executable.binding_sets,
        "table": {"row_bytes": -(-used // ALIGNMENT) * ALIGNMENT, "used_bytes": used, "rows": 1},
        "functions": {name: _function(f) for name, f in executable.functions.items()},
        "memory": {
            **{kind: executable.bytes_of(kind) for kind in ("storage", "state", "input", "output", "weight")},
            "unplanned": max(executable.unplanned.values(), default=0),
        },
        "writes": [_written(kernel.source.access) for kernel in executable.kernels],
    }


def _written(access: Sequence[str]) -> list[int]:
    """Which of a kernel's bindings it writes."""
    return [at for at, mode in enumerate(access) if mode == "read_write"]


def _function(entry: EntryPoint) -> dict[str, Any]:
    return {
        "index": entry.index,
        "arguments": [_argument(a) for a in entry.arguments],
        "results": [_argument(a) for a in entry.results],
        "variables": {name: list(bounds) for name, bounds in entry.variables.items()},
        "slots": entry.slots,
        "captured": entry.captured,
    }


def _argument(argument: Argument) -> dict[str, Any]:
    if argument.dtype is None:
        return {"name": argument.name, "shape": argument.shape}
    return {
        "name": argument.name,
        "dtype": argument.dtype,
        "shape": argument.shape,
        "buffer": argument.buffer,
        "offset": argument.offset,
    }


def as_json(value: Any) -> bytes:
    """The text of a JSON file, always the same for equal values."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class _ShardWriter:
    """Concatenates weights, each at a multiple of 256 bytes, and cuts the result into shards."""

    def __init__(self, folder: Path, progress: Callable[[int], None]) -> None:
        self._folder, self._progress = folder, progress
        self._pending = bytearray()
        self._listed: dict[str, dict[str, Any]] = {}

    def add(self, array: Array, size: int) -> list[dict[str, Any]]:
        """Where the bytes went. Raises WebrelaxError where there are not `size` of them."""
        if array.nbytes != size:
            raise WebrelaxError(f"a weight has {array.nbytes} bytes, the program expects {size}")
        data, parts = array.data.cast("B"), []
        self._pad()
        at = 0
        while at < len(data):
            self._flush_full()
            offset = len(self._pending)
            size = min(len(data) - at, SHARD_BYTES - offset)
            self._pending += data[at : at + size]
            parts.append({"file": self._name(), "offset": offset, "size": size, "at": at})
            at += size
        self._progress(len(data))
        return parts

    def finish(self) -> dict[str, dict[str, Any]]:
        """Writes the last shard; the files with sizes and hashes."""
        if self._pending:
            self._flush()
        return self._listed

    def _name(self) -> str:
        return f"weights-{len(self._listed):03}.bin"

    def _pad(self) -> None:
        self._flush_full()
        self._pending += bytes(-len(self._pending) % ALIGNMENT)
        self._flush_full()

    def _flush_full(self) -> None:
        if len(self._pending) == SHARD_BYTES:
            self._flush()

    def _flush(self) -> None:
        name, content = self._name(), bytes(self._pending)
        (self._folder / name).write_bytes(content)
        self._listed[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        self._pending.clear()
