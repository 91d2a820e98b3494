"""Reading GGUF model files, memory-mapped: metadata, and tensors as views into the map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3, little endian. A file is input from
a stranger: every count is compared with the bytes that are left before anything is read or allocated for it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from ..errors import WebrelaxError
from .mapped import map_file

MetadataValue: TypeAlias = "bool | int | float | str | tuple[MetadataValue, ...]"
_Kind = TypeVar("_Kind", bool, int, float, str, "tuple[MetadataValue, ...]")

# Type id: (name, elements a block, bytes a block). Ids 4, 5, 31-33 and 36-38 were withdrawn from ggml.
_TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
SUPPORTED = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"),
)

_SCALARS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_ARRAY_HEAD, _TENSOR_TAIL = struct.Struct("<IQ"), struct.Struct("<IQ")

_MAX_DIMENSIONS = 4
_MAX_ARRAY_DEPTH = 4
_MAX_ARRAY_ELEMENTS = 1 << 24  # of all arrays of a file; the largest vocabularies have 2^18 tokens
_MAX_STRING_BYTES = 1 << 26
_MIN_ENTRY_BYTES = 8 + 4 + 1  # key length, value type, one byte of value
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # name length, dimension count, type, offset


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor of a file.

    `type` is ggml's name, such as "Q4_1"; `shape` is row-major (NumPy order, the reverse of GGUF's); `offset` and
    `nbytes` count bytes from the start of the file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    _file: memoryview = field(repr=False, compare=False)

    def bytes(self) -> memoryview:
        """The `nbytes` bytes of block data: a read-only view of the mapped file, nothing is copied."""
        return self._file[self.offset : self.offset + self.nbytes]


@dataclass(frozen=True)
class GGUFFile:
    """An open model file. The mapping lives as long as this object or any tensor of it does."""

    path: Path
    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, GGUFTensor]

    def optional(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """The metadata value of `key`, None where the file has none; an error if it is not a `kind`."""
        value = self.metadata.get(key)
        return None if value is None else self.typed(key, value, kind)

    def require(self, key: str, kind: type[_Kind]) -> _Kind:
        """The metadata value of `key`; an error if it is missing or not a `kind`."""
        value = self.optional(key, kind)
        if value is None:
            raise self.error(f"the metadata lack {key!r}")
        return value

    def typed(self, key: str, value: MetadataValue, kind: type[_Kind]) -> _Kind:
        """`value`, which stands under `key`; an error if it is not a `kind`."""
        if type(value) is not kind:  # bool is no int here
            raise self.error(f"the value of {key!r} is {_describe(value)}; expected {_KIND_NAMES[kind]}")
        return value

    def error(self, problem: str) -> WebrelaxError:
        """The error that says `problem` about this file."""
        return WebrelaxError(f"{self.path}: {problem}")


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Map the GGUF file at `path` and read its header; WebrelaxError if it is missing, damaged or of another format."""
    path = Path(path)
    view = map_file(path, "a .gguf file")
    magic = bytes(view[:4])
    if magic != b"GGUF":
        raise WebrelaxError(f"{path}: this is not a GGUF file; {_guess(bytes(view[:512]))}")
    header = _Header(view, path)
    version = header.unpack(_U32, "the version")
    if version & 0xFFFF == 0 and version:
        raise header.error("this is a big-endian GGUF file; convert it to little endian")
    if version not in (2, 3):
        raise header.error(f"GGUF version {version} is not supported (versions 2 and 3 are); convert the model again")
    tensor_count = header.count(header.unpack(_U64, "the tensor count"), _MIN_TENSOR_BYTES, "tensors")
    entry_count = header.count(header.unpack(_U64, "the metadata count"), _MIN_ENTRY_BYTES, "metadata entries")
    metadata = header.read_metadata(entry_count)
    tensors = header.read_tensors(tensor_count, _alignment(header, metadata))
    return GGUFFile(path, version, MappingProxyType(metadata), MappingProxyType(tensors))


def require_supported(tensor: GGUFTensor) -> None:
    """WebrelaxError, naming the tensor and its type, unless webrelax can read the type."""
    if tensor.type not in SUPPORTED:
        raise WebrelaxError(
            f"tensor {quote(tensor.name)} has type {tensor.type}, which is not supported;"
            f" supported are {', '.join(SUPPORTED)}"
        )


class _Header:
    """A bounds-checked reading position in the header."""

    def __init__(self, view: memoryview, path: Path) -> None:
        self.view = view
        self.path = path
        self.position = 4
        self.elements_left = _MAX_ARRAY_ELEMENTS

    def error(self, problem: str) -> WebrelaxError:
        return WebrelaxError(f"{self.path}: {problem}")

    def take(self, size: int, what: str) -> int:
        """Step over `size` bytes; return where they start."""
        start = self.position
        if size > len(self.view) - start:
            raise self.error(f"the file is cut short or damaged: it ends inside {what}")
        self.position = start + size
        return start

    def unpack(self, layout: struct.Struct, what: str) -> int:
        value: int = layout.unpack_from(self.view, self.take(layout.size, what))[0]
        return value

    def count(self, value: int, element_bytes: int, what: str) -> int:
        """`value`, once it is known that so many elements of at least `element_bytes` each can follow."""
        if value > (len(self.view) - self.position) // element_bytes:
            raise self.error(f"the file is cut short or damaged: it claims {value} {what}, more than can follow")
        return value

    def string(self, what: str) -> str:
        size = self.unpack(_U64, what)
        if size > _MAX_STRING_BYTES:
            raise self.error(f"the file is damaged: {what} claims a length of {size} bytes")
        start = self.take(size, what)
        try:
            return str(self.view[start : start + size], "utf-8")
        except UnicodeDecodeError:
            raise self.error(f"the file is damaged: {what} is not UTF-8 text") from None

    def value(self, kind: int, what: str, depth: int = 0) -> MetadataValue:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self.array(what, depth + 1)
        scalar: MetadataValue = self.scalars(kind, 1, what)[0]
        return scalar

    def scalars(self, kind: int, count: int, what: str) -> tuple[Any, ...]:
        code = _SCALARS.get(kind)
        if code is None:
            raise self.error(f"the file is damaged: {what} has the unknown value type {kind}")
        layout = f"<{count}{code}"
        values = struct.unpack_from(layout, self.view, self.take(struct.calcsize(layout), what))
        if kind != _BOOL:
            return values
        if values and max(values) > 1:
            raise self.error(f"the file is damaged: {what} holds a boolean that is neither 0 nor 1")
        return tuple(map(bool, values))

    def array(self, what: str, depth: int) -> tuple[MetadataValue, ...]:
        if depth > _MAX_ARRAY_DEPTH:
            raise self.error(f"{what} nests arrays more than {_MAX_ARRAY_DEPTH} deep")
        kind, claimed = _ARRAY_HEAD.unpack_from(self.view, self.take(_ARRAY_HEAD.size, what))
        smallest = {_STRING: 8, _ARRAY: _ARRAY_HEAD.size}.get(kind) or struct.calcsize(_SCALARS.get(kind, "B"))
        count = self.count(claimed, smallest, f"array elements in {what}")
        self.elements_left -= count
        if self.elements_left < 0:
            raise self.error(f"{what} is too long: the metadata hold more than {_MAX_ARRAY_ELEMENTS} array elements")
        if kind in (_STRING, _ARRAY):
            return tuple(self.value(kind, what, depth) for _ in range(count))
        return self.scalars(kind, count, what)

    def read_metadata(self, count: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for number in range(count):
            key = self.string(f"metadata key {number}")
            if key in metadata:
                raise self.error(f"the metadata key {quote(key)} occurs twice")
            what = f"the metadata value of {quote(key)}"
            metadata[key] = self.value(self.unpack(_U32, what), what)
        return metadata

    def read_tensors(self, count: int, alignment: int) -> dict[str, GGUFTensor]:
        described = [self.read_tensor(number, alignment) for number in range(count)]
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, type_name, shape, offset, size in described:
            if name in tensors:
                raise self.error(f"the tensor {quote(name)} occurs twice")
            if start + offset + size > len(self.view):
                raise self.error(
                    f"the file is cut short or damaged: it ends before the data of tensor {quote(name)}"
                    f" ({type_name}, shape {shape}) do"
                )
            tensors[name] = GGUFTensor(name, type_name, shape, start + offset, size, self.view)
        return tensors

    def read_tensor(self, number: int, alignment: int) -> tuple[str, str, tuple[int, ...], int, int]:
        """(name, type, shape, offset from the start of the data, bytes)."""
        name = self.string(f"the name of tensor {number}")
        tensor = f"tensor {quote(name)}"
        dimensions = self.unpack(_U32, tensor)
        if dimensions > _MAX_DIMENSIONS:
            raise self.error(f"{tensor} has {dimensions} dimensions; at most {_MAX_DIMENSIONS} are possible")
        shape: tuple[int, ...] = self.scalars(10, dimensions, tensor)[::-1]
        type_id, offset = _TENSOR_TAIL.unpack_from(self.view, self.take(_TENSOR_TAIL.size, tensor))
        if type_id not in _TENSOR_TYPES:
            raise self.error(f"{tensor} has the unknown type id {type_id}")
        type_name, block, block_bytes = _TENSOR_TYPES[type_id]
        if 0 in shape:
            raise self.error(f"{tensor} has a dimension of 0 (shape {shape})")
        if (shape[-1] if shape else 1) % block:
            raise self.error(f"{tensor} ({type_name}, shape {shape}) has rows that are no multiple of {block} elements")
        if offset % alignment:
            raise self.error(f"{tensor} starts at offset {offset}, which is no multiple of the alignment {alignment}")
        return name, type_name, shape, offset, prod(shape) // block * block_bytes


def _alignment(header: _Header, metadata: Mapping[str, MetadataValue]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise header.error(f"'general.alignment' is {_describe(alignment)}; it must be a power of two")
    return alignment


def _guess(start: bytes) -> str:
    """What a file that starts so looks like, with what to do about it."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"PK\x03\x04"):
        return "it looks like a zip archive or a PyTorch checkpoint; unpack or convert it first"
    if len(start) > 9 and start[8:9] == b"{":
        return "it looks like safetensors; convert it to GGUF first"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it looks like a web page, probably an error page saved by a download; download it again"
    if text.startswith(b"version https://git-lfs"):
        return "it looks like a Git LFS pointer; fetch the file itself with `git lfs pull`"
    if start.startswith(b"\x1f\x8b"):
        return "it looks like gzip data; unpack it first"
    if start[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "it looks like a model in a format before GGUF; convert it again"
    if not any(start):
        return "it starts with zeros, perhaps an unfinished download; download it again"
    return f"it starts with the bytes {start[:4].hex(' ')}"


_KIND_NAMES: Mapping[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    tuple: "a list",
}


def _describe(value: MetadataValue) -> str:
    return f"a list of {len(value)}" if isinstance(value, tuple) else quote(value)


def quote(value: object) -> str:
    """A value for a message: on one line and short, whatever the file holds."""
    text = repr(value[:80] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"
