"""Opens a built site: finds the model, checks the manifest, reads what the tools need."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.errors import WebrelaxError
from ..compiler.executable import Argument, CompiledKernel, DeviceBuffer, EntryPoint
from ..compiler.ir import Constant, Module, all_bindings, atoms, verify
from ..compiler.serialize import from_json
from ..compiler.source import KernelSource
from ..compiler.target import WEBGPU
from ..compiler.tir import Buffer
from ..compiler.vm import VMFormatError, VMModule, decode
from .bundle import FORMAT
from .manifest import HEAD, KERNELS, MANIFEST, PROGRAM, for_target, misfit
from .schema import read_json

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Bundle:
    """A model of a site, compiled for one target. Files are read, and checked against the manifest's hashes, when they
    are first used. The manifest has the target's fields beside the common ones."""

    folder: Path
    manifest: dict[str, Any]
    target: str
    profile: str

    def file(self, name: str) -> bytes:
        """A file's content. Raises WebrelaxError where it is missing or damaged."""
        entry = self.manifest["files"].get(name)
        if entry is None:
            raise WebrelaxError(f"{self.folder}: the manifest lists no {name}: build the site again")
        path = self.folder / name
        if not path.is_file():
            raise WebrelaxError(f"{path} is missing: build the site again")
        if (size := path.stat().st_size) != entry["size"]:
            raise WebrelaxError(f"{path} has {size} bytes, not {entry['size']}: build the site again")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise WebrelaxError(f"{path} is damaged (its SHA-256 is not the manifest's): build the site again")
        return content

    def json(self, name: str, description: Any) -> Any:
        """A file as JSON that is as described; see `schema`."""
        return read_json(self.file(name), self.folder / name, description)

    @cached_property
    def bytecode(self) -> VMModule:
        name = self.manifest["profiles"][self.profile]["module"]
        try:
            module = decode(self.file(name))
        except VMFormatError as error:
            raise WebrelaxError(f"{self.folder / name} is damaged ({error}): build the site again") from error
        counts = (len(self.kernels), len(self.manifest["binding_sets"]), len(self.buffers))
        arguments = {f.index: sum(len(a.shape) for a in f.arguments) for f in self.functions.values()}
        known = {at: f.argument_count for at, f in enumerate(module.functions)}
        if counts != (module.kernels, module.binding_sets, module.buffers) or not arguments.items() <= known.items():
            raise WebrelaxError(f"{self.folder / name} does not fit the manifest: build the site again")
        return module

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
                tuple(f["slots"]),
                f["captured"],
            )
            for name, f in self.manifest["functions"].items()
        }

    @cached_property
    def stored(self) -> dict[str, Any]:
        """The program file; see `stored.program_file`."""
        data: dict[str, Any] = self.json(self.manifest["profiles"][self.profile]["program"], PROGRAM)
        return data

    @cached_property
    def program(self) -> tuple[Module, tuple[CompiledKernel, ...]]:
        """The lowered module and its kernels, which fit each other and the weights."""
        module, kernels = from_json(self.stored["program"])
        try:
            self._check_program(module, kernels)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            name = self.manifest["profiles"][self.profile]["program"]
            raise WebrelaxError(f"{self.folder / name} is damaged ({error}): build the site again") from error
        return module, kernels

    def _check_program(self, module: Module, kernels: Sequence[CompiledKernel]) -> None:
        verify(module)
        if module.functions.keys() != self.functions.keys():
            raise ValueError("it has other functions than the manifest")
        for kernel in kernels:
            if len(module.programs[kernel.program].symbols) != len(kernel.slots):
                raise ValueError(f"the kernel {kernel.source.name} has no program")
        sizes = {buffer.name: buffer.size for buffer in self.buffers if buffer.kind == "weight"}
        used = (atom for f in module.functions.values() for b in all_bindings(f.body) for atom in atoms(b.value))
        for weight in (atom for atom in used if isinstance(atom, Constant)):
            shape, dtype = weight.annotation.shape, weight.annotation.dtype
            if shape is None or dtype is None or Buffer(weight.name, shape, dtype).size != sizes.get(weight.name):
                raise ValueError(f"the weight {weight.name} has another size than the manifest's")

    @cached_property
    def kernels(self) -> tuple[KernelSource, ...]:
        """The kernels as the page gets them, or as they were compiled."""
        if self.target != WEBGPU.name:
            return tuple(kernel.source for kernel in self.program[1])
        listed = self.json(self.manifest["profiles"][self.profile]["kernels"], KERNELS)["kernels"]
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
                for part in self.manifest["weights"][buffer["name"]]["parts"]:
                    if part["file"] not in shards:
                        shards[part["file"]] = self.file(part["file"])
                    pieces.append(memoryview(shards[part["file"]])[part["offset"] : part["offset"] + part["size"]])
                data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                result[buffer["name"]] = np.frombuffer(data, np.uint32)
        return result


def open_bundle(site: Path, model: str | None = None, target: str | None = None) -> Bundle:
    """The only model of a site, or the one of that name, for a target: the first that it was built for unless named.

    Raises WebrelaxError with what to do.
    """
    folder = site / "models"
    names = sorted(p.parent.name for p in folder.glob("*/manifest.json") if p.is_file())
    if not names:
        raise WebrelaxError(f"{site} is not a site: build one with `webrelax build MODEL -o {site}`")
    if model is None and len(names) > 1:
        raise WebrelaxError(f"{site} has several models, choose one with --model: {', '.join(names)}")
    name = names[0] if model is None else model
    if name not in names:
        raise WebrelaxError(f"{site} has no model {name!r}; it has: {', '.join(names)}")
    path = folder / name / "manifest.json"
    content = path.read_bytes()
    found = read_json(content, path, HEAD)["format"]
    if found != FORMAT:
        raise WebrelaxError(f"{path} has format {found}, this webrelax reads {FORMAT}: build the site again")
    manifest = read_json(content, path, MANIFEST)
    if wrong := misfit(manifest):
        raise WebrelaxError(f"{path} is damaged ({wrong}): build the site again")
    built = list(manifest["targets"])
    if target not in (None, *built):
        raise WebrelaxError(
            f"{path.parent} was built for {' and '.join(built)}, not for {target}: build it with --targets {target}"
        )
    chosen = for_target(manifest, target or built[0])
    return Bundle(path.parent, chosen, target or built[0], next(iter(chosen["profiles"])))


def _argument(entry: dict[str, Any]) -> Argument:
    return Argument(
        entry["name"], entry.get("dtype"), tuple(entry["shape"]), entry.get("buffer", -1), entry.get("offset", 0)
    )
