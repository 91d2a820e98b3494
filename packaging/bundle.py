"""Writes a model's folder of a site; docs/bundle-format.md describes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.errors import WebrelaxError
from ..compiler.executable import Argument, EntryPoint, Executable
from ..compiler.target import Target
from ..compiler.vm import encode
from . import __version__
from .stored import program_file

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

FORMAT = 2
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


def write_bundle(
    folder: Path,
    executable: Executable,
    target: Target,
    info: ModelInfo,
    weights: Mapping[str, Callable[[], Array]],
    extra_files: Mapping[str, bytes],
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Writes all files into an empty folder and returns the manifest. `progress` is called with bytes written.

    `weights` gives each weight buffer's array; `extra_files` are the tokenizer's. The same input gives the same bytes.
    """
    files: dict[str, bytes] = {
        "module.bin": encode(executable.bytecode),
        f"kernels-{target.profile}.json": _json({"kernels": [_kernel(k) for k in executable.kernels]}),
        f"program-{target.profile}.json": _json(program_file(executable, target)),
        **extra_files,
    }
    listed: dict[str, dict[str, Any]] = {}
    for name, content in sorted(files.items()):
        (folder / name).write_bytes(content)
        listed[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    shards = _ShardWriter(folder, progress)
    buffers = []
    for buffer in executable.buffers:
        entry: dict[str, Any] = {"name": buffer.name, "kind": buffer.kind, "size": buffer.size}
        if buffer.kind == "weight":
            array = weights[buffer.name]()
            if array.nbytes != buffer.size:
                raise WebrelaxError(f"weight {buffer.name} has {array.nbytes} bytes, the program expects {buffer.size}")
            entry["parts"] = shards.add(array.data.cast("B"))
        buffers.append(entry)
    listed |= shards.finish()
    manifest = _manifest(executable, target, info, listed, buffers)
    (folder / "manifest.json").write_bytes(_json(manifest))
    return manifest


def _manifest(
    executable: Executable, target: Target, info: ModelInfo, files: Mapping[str, Any], buffers: list[Any]
) -> dict[str, Any]:
    used = executable.bytecode.row_slots * 4
    return {
        "format": FORMAT,
        "webrelax": __version__,
        "name": info.name,
        "model": {
            "architecture": info.architecture,
            "context": info.context,
            "prefill_chunk": info.prefill_chunk,
            "vocab": info.vocabulary,
        },
        "files": dict(sorted(files.items())),
        "profiles": {
            target.profile: {
                "features": list(target.features),
                "kernels": f"kernels-{target.profile}.json",
                "module": "module.bin",
                "program": f"program-{target.profile}.json",
            }
        },
        "buffers": buffers,
        "binding_sets": executable.binding_sets,
        "table": {"row_bytes": -(-used // ALIGNMENT) * ALIGNMENT, "used_bytes": used, "rows": 1},
        "functions": {name: _function(f) for name, f in executable.functions.items()},
        "memory": {
            **{kind: executable.bytes_of(kind) for kind in ("storage", "state", "input", "output", "weight")},
            "unplanned": max(executable.unplanned.values(), default=0),
        },
    }


def _kernel(kernel: Any) -> dict[str, Any]:
    source = kernel.source
    return {
        "name": source.name,
        "entry": source.entry,
        "wgsl": source.wgsl,
        "workgroup": source.workgroup,
        "access": source.access,
    }


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


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class _ShardWriter:
    """Concatenates weights, each at a multiple of 256 bytes, and cuts the result into shards."""

    def __init__(self, folder: Path, progress: Callable[[int], None]) -> None:
        self._folder, self._progress = folder, progress
        self._pending = bytearray()
        self._listed: dict[str, dict[str, Any]] = {}

    def add(self, data: memoryview) -> list[dict[str, Any]]:
        """Where the bytes went."""
        parts = []
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
