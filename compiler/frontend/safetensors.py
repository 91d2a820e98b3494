"""Reading the weights of a Hugging Face folder, memory-mapped: tensors as views into safetensors files.

Format: https://github.com/huggingface/safetensors#format. A file is input from a stranger: every number of its header
is compared with the bytes that are there. (The `safetensors` package reads no bfloat16 without PyTorch.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from ..errors import WebrelaxError
from .mapped import map_file

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_BYTES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 1),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
        **dict.fromkeys(("U32", "I32", "F32"), 4),
        **dict.fromkeys(("U64", "I64", "F64"), 8),
    }
)
_MAX_HEADER = 100_000_000  # the bound of the format's own reader
_MAX_DIMENSIONS = 8


@dataclass(frozen=True)
class SafeTensor:
    """One tensor: `type` is the format's name, such as "BF16"; `offset` and `nbytes` count bytes of its file."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    _file: memoryview = field(repr=False, compare=False)

    def bytes(self) -> memoryview:
        """The `nbytes` little-endian bytes of the elements, row-major: a read-only view, nothing is copied."""
        return self._file[self.offset : self.offset + self.nbytes]


def open_safetensors(path: str | os.PathLike[str]) -> dict[str, SafeTensor]:
    """The tensors of one file. Raises WebrelaxError if it is missing, damaged or of another format."""
    path = Path(path)
    view = map_file(path, "a .safetensors file")
    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or not 2 <= size <= min(_MAX_HEADER, len(view) - 8):
        raise _damaged(path, f"its header claims {size} bytes of {len(view)}")
    header = _json_object(bytes(view[8 : 8 + size]), path)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, view, 8 + size, name, entry) for name, entry in header.items()}
    end = 8 + size
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != end:
            raise _damaged(path, f"the data of tensor {tensor.name[:80]!r} do not follow those before them")
        end += tensor.nbytes
    if end != len(view):
        raise _damaged(path, f"its tensors end at byte {end} of {len(view)}")
    return tensors


def open_folder(folder: str | os.PathLike[str]) -> dict[str, SafeTensor]:
    """The tensors of a folder: those of `model.safetensors`, or of the parts that its index lists.

    Raises WebrelaxError where a file or a tensor that the index names is missing.
    """
    folder = Path(folder)
    if (folder / SINGLE).exists():
        return open_safetensors(folder / SINGLE)
    index = folder / INDEX
    if not index.exists():
        raise WebrelaxError(f"{folder}: there is no {SINGLE}{_instead(folder)}")
    listed = _json_object(bytes(map_file(index, "a JSON file")), index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(part, str) for part in listed.values()):
        raise _damaged(index, "it has no 'weight_map' from tensors to files")
    found: dict[str, SafeTensor] = {}
    for part in sorted(set(listed.values())):
        if part in ("", ".", "..") or "/" in part or "\\" in part:
            raise _damaged(index, f"it names the file {part[:80]!r}, which is not in the folder")
        found |= {name: t for name, t in open_safetensors(folder / part).items() if listed.get(name) == part}
    missing = next((name for name in listed if name not in found), None)
    if missing is not None:
        raise WebrelaxError(f"{folder}: {listed[missing]} lacks the tensor {missing[:80]!r} that {INDEX} says it has")
    return found


def _tensor(path: Path, view: memoryview, start: int, name: str, entry: Any) -> SafeTensor:
    what = f"tensor {name[:80]!r}"
    if not isinstance(entry, dict):
        raise _damaged(path, f"{what} is not described")
    type_name, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(type_name, str) or type_name not in _BYTES:
        raise WebrelaxError(f"{path}: {what} has the type {str(type_name)[:80]!r}, which is not known")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS or not _are_counts(offsets) or len(offsets) != 2:
        raise _damaged(path, f"the shape or the place of {what} is unusable")
    begin, end = offsets
    if end > len(view) - start or end - begin != prod(shape) * _BYTES[type_name]:
        raise _damaged(path, f"{what} ({type_name}, {tuple(shape)}) does not fit bytes {begin} to {end} of its data")
    return SafeTensor(name, type_name, tuple(shape), start + begin, end - begin, view)


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _json_object(text: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as problem:
        raise _damaged(path, f"its JSON cannot be read ({str(problem)[:80]})") from None
    if not isinstance(value, dict):
        raise _damaged(path, "its JSON is no object")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _instead(folder: Path) -> str:
    """What is there, and what to do about it."""
    if not folder.is_dir():
        return ", and no such folder"
    others = next(_pickles(folder), None)
    if others is not None:
        return f"; {others} is a PyTorch checkpoint: convert it to safetensors first"
    return f" and no {INDEX}"


def _pickles(folder: Path) -> Iterator[str]:
    return (p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in sorted(folder.glob(pattern)))


def _damaged(path: Path, why: str) -> WebrelaxError:
    return WebrelaxError(f"{path}: the file is cut short or damaged: {why}")
