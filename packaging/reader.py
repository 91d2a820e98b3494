"""Opens a built site: finds the model, checks the manifest, reads what the tools need."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.errors import WebrelaxError
from ..compiler.executable import Argument, CompiledKernel, DeviceBuffer, EntryPoint
from ..compiler.ir import Module
from ..compiler.serialize import from_json
from ..compiler.vm import VMModule, decode
from ..compiler.wgsl import KernelSource
from .bundle import FORMAT

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bundle:
    """A model of a site. Files are read, and checked against the manifest's hashes, when they are first used."""

    folder: Path
    manifest: dict[str, Any]
    profile: str = "f32"

    def file(self, name: str) -> bytes:
        """A file's content. Raises WebrelaxError where it is missing or damaged."""
        entry = self.manifest["files"].get(name)
        if entry is None:
            raise WebrelaxError(f"{self.folder}: the manifest lists no {name}: build the site again")
        path = self.folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise WebrelaxError(f"{path} is missing: build the site again") from None
        if len(content) != entry["size"]:
            raise WebrelaxError(f"{path} has {len(content)} bytes, not {entry['size']}: build the site again")
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise WebrelaxError(f"{path} is damaged (its SHA-256 is not the manifest's): build the site again")
        return content

    def json(self, name: str) -> Any:
        """A file as JSON."""
        return json.loads(self.file(name))

    @cached_property
    def bytecode(self) -> VMModule:
        return decode(self.file(self.manifest["profiles"][self.profile]["module"]))

    @cached_property
    def buffers(self) -> tuple[DeviceBuffer, ...]:
        return tuple(DeviceBuffer(b["name"], b["kind"], b["size"]) for b in self.manifest["buffers"])

    @cached_property
    def functions(self) -> dict[str, EntryPoint]:
        return {
            name: EntryPoint(
                name,
                f["index"],
                tuple(map(_argument, f["arguments"])),
                tuple(map(_argument, f["results"])),
                {v: (low, high) for v, (low, high) in f["variables"].items()},
            )
            for name, f in self.manifest["functions"].items()
        }

    @cached_property
    def stored(self) -> dict[str, Any]:
        """The program file: `program`, `passes`, `unplanned`."""
        data: dict[str, Any] = self.json(self.manifest["profiles"][self.profile]["program"])
        return data

    @cached_property
    def program(self) -> tuple[Module, tuple[CompiledKernel, ...]]:
        """The lowered module and its kernels."""
        module, kernels = from_json(self.stored["program"])
        return module, kernels

    @cached_property
    def kernels(self) -> tuple[KernelSource, ...]:
        """The kernels as the page gets them."""
        listed = self.json(self.manifest["profiles"][self.profile]["kernels"])["kernels"]
        return tuple(
            KernelSource(k["name"], k["entry"], k["wgsl"], tuple(k["workgroup"]), tuple(k["access"])) for k in listed
        )

    def weights(self) -> dict[str, Array]:
        """All weights by name as read-only u32 words."""
        import numpy as np

        shards: dict[str, bytes] = {}
        result = {}
        for buffer in self.manifest["buffers"]:
            if buffer["kind"] == "weight":
                pieces = []
                for part in buffer["parts"]:
                    if part["file"] not in shards:
                        shards[part["file"]] = self.file(part["file"])
                    pieces.append(memoryview(shards[part["file"]])[part["offset"] : part["offset"] + part["size"]])
                data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                result[buffer["name"]] = np.frombuffer(data, np.uint32)
        return result


def open_bundle(site: Path, model: str | None = None) -> Bundle:
    """The only model of a site, or the one of that name. Raises WebrelaxError with what to do."""
    folder = site / "models"
    names = sorted(p.parent.name for p in folder.glob("*/manifest.json")) if folder.is_dir() else []
    if not names:
        raise WebrelaxError(f"{site} is not a site: build one with `webrelax build MODEL -o {site}`")
    if model is None and len(names) > 1:
        raise WebrelaxError(f"{site} has several models, choose one with --model: {', '.join(names)}")
    name = model or names[0]
    if name not in names:
        raise WebrelaxError(f"{site} has no model {name!r}; it has: {', '.join(names)}")
    path = folder / name / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        found = manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise WebrelaxError(f"{path} is damaged: build the site again") from None
    if found != FORMAT:
        raise WebrelaxError(f"{path} has format {found}, this webrelax reads {FORMAT}: build the site again")
    return Bundle(folder / name, manifest)


def _argument(entry: dict[str, Any]) -> Argument:
    return Argument(
        entry["name"], entry.get("dtype"), tuple(entry["shape"]), entry.get("buffer", -1), entry.get("offset", 0)
    )
