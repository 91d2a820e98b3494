from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend import SUPPORTED, GGUFFile, GGUFTensor, open_gguf, require_supported
from webrelax.compiler.frontend.gguf import _TENSOR_TYPES

U32, U64, ARRAY = 4, 10, 9


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(
    name: str = "w", dims: tuple[int, ...] = (32, 2), type_id: int = 2, offset: int = 0, n_dims: int | None = None
) -> bytes:
    count = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, type_id, offset)


def gguf_bytes(
    entries: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    version: int = 3,
    n_tensors: int | None = None,
    n_entries: int | None = None,
    data: int = 64,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + bytes(range(256)) * (data // 256) + bytes(data % 256)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], GGUFFile]:
    def write_and_open(content: bytes) -> GGUFFile:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        return open_gguf(path)

    return write_and_open


def write_sample(path: Path) -> None:
    """A small valid file, by the reference writer, with every kind of value."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4_000_000_000)
    writer.add_int32("test.i32", -2_000_000_000)
    writer.add_uint64("test.u64", 2**63 + 1)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "naïve 日本語 😀")
    writer.add_array("test.strings", ["a", "", "Ġthe"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.25, -1.5])
    writer.add_array("test.bools", [True, False])
    writer.add_tensor("vector", np.arange(7, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(12, dtype=np.float16).reshape(3, 4))
    blocks = gguf.quantize(np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("quantized", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "sample.gguf"
    write_sample(path)
    return path.read_bytes()


def touch(model: GGUFFile) -> int:
    return sum(sum(tensor.bytes()) for tensor in model.tensors.values())


def test_reads_every_kind_of_value(opened: Callable[[bytes], GGUFFile], sample: bytes) -> None:
    model = opened(sample)
    assert model.version == 3
    assert {key: value for key, value in model.metadata.items() if key.startswith("test.")} == {
        "test.u8": 200,
        "test.i8": -100,
        "test.u16": 60000,
        "test.i16": -30000,
        "test.u32": 4_000_000_000,
        "test.i32": -2_000_000_000,
        "test.u64": 2**63 + 1,
        "test.i64": -(2**62),
        "test.f32": 0.5,
        "test.f64": 0.1,
        "test.bool": True,
        "test.string": "naïve 日本語 😀",
        "test.strings": ("a", "", "Ġthe"),
        "test.ints": (1, -2, 3),
        "test.floats": (0.25, -1.5),
        "test.bools": (True, False),
    }
    assert [(one.name, one.type, one.shape, one.nbytes) for one in model.tensors.values()] == [
        ("vector", "F32", (7,), 28),
        ("matrix", "F16", (3, 4), 24),
        ("quantized", "Q4_1", (3, 64), 3 * 2 * 20),
    ]
    assert np.array_equal(np.frombuffer(model.tensors["vector"].bytes(), np.float32), np.arange(7))
    with pytest.raises(TypeError):
        model.tensors["vector"].bytes()[0] = 1


def test_agrees_with_the_reference_reader_on_the_real_model(smollm2_path: Path) -> None:
    model, reference = open_gguf(smollm2_path), gguf.GGUFReader(smollm2_path)
    assert set(model.metadata) == {key for key in reference.fields if not key.startswith("GGUF.")}
    for key, value in model.metadata.items():
        expected = reference.fields[key].contents()
        assert value == (tuple(expected) if isinstance(expected, list) else expected), key
    assert list(model.tensors) == [one.name for one in reference.tensors]
    for one in reference.tensors:
        mine = model.tensors[one.name]
        assert (mine.type, mine.offset, mine.nbytes) == (one.tensor_type.name, one.data_offset, one.n_bytes)
        assert mine.shape == tuple(int(size) for size in one.shape[::-1])
        assert bytes(mine.bytes()) == one.data.tobytes()
        require_supported(mine)


def test_knows_every_tensor_type_of_the_reference() -> None:
    assert {name: sizes for name, *sizes in _TENSOR_TYPES.values()} == {
        kind.name: list(sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()
    }
    assert {type_id: name for type_id, (name, *_) in _TENSOR_TYPES.items()} == {
        kind.value: kind.name for kind in gguf.GGMLQuantizationType
    }


def test_tensor_outlives_the_file(opened: Callable[[bytes], GGUFFile], sample: bytes) -> None:
    data = opened(sample).tensors["quantized"].bytes()
    assert len(data) == 120


def test_reads_version_2_a_scalar_and_nested_arrays(opened: Callable[[bytes], GGUFFile]) -> None:
    inner = struct.pack("<IQ", U32, 2) + struct.pack("<2I", 7, 8)
    nested = struct.pack("<IQ", ARRAY, 2) + inner + struct.pack("<IQ", 8, 1) + string("x")
    model = opened(gguf_bytes((entry("nested", ARRAY, nested),), (tensor(dims=(), type_id=0),), version=2))
    assert model.version == 2
    assert model.metadata["nested"] == ((7, 8), ("x",))
    assert model.tensors["w"].shape == ()
    assert model.tensors["w"].nbytes == 4


def test_alignment_moves_the_data(opened: Callable[[bytes], GGUFFile]) -> None:
    entries = (entry("general.alignment", U32, struct.pack("<I", 256)),)
    model = opened(gguf_bytes(entries, (tensor(),), alignment=256, data=256))
    assert model.tensors["w"].offset % 256 == 0
    assert bytes(model.tensors["w"].bytes()[:3]) == b"\0\1\2"


def test_tensors_may_overlap(opened: Callable[[bytes], GGUFFile]) -> None:
    model = opened(gguf_bytes(tensors=(tensor("a"), tensor("b"))))
    assert model.tensors["a"].bytes() == model.tensors["b"].bytes()


def test_typed_metadata(opened: Callable[[bytes], GGUFFile], sample: bytes) -> None:
    model = opened(sample)
    assert model.require("test.u32", int) == 4_000_000_000
    assert model.optional("test.absent", str) is None
    with pytest.raises(WebrelaxError, match=r"model\.gguf: the metadata lack 'test\.absent'"):
        model.require("test.absent", int)
    with pytest.raises(WebrelaxError, match=r"the value of 'test\.bool' is True; expected an integer"):
        model.require("test.bool", int)
    with pytest.raises(WebrelaxError, match=r"the value of 'test\.ints' is a list of 3; expected a number"):
        model.require("test.ints", float)


def test_unsupported_type_is_named() -> None:
    one = GGUFTensor("blk.0.ffn_up.weight", "IQ2_XXS", (1, 256), 0, 66, memoryview(b""))
    with pytest.raises(WebrelaxError) as caught:
        require_supported(one)
    assert str(caught.value) == (
        f"tensor 'blk.0.ffn_up.weight' has type IQ2_XXS, which is not supported; supported are {', '.join(SUPPORTED)}"
    )
    assert set(SUPPORTED) <= {name for name, *_ in _TENSOR_TYPES.values()}


def test_unreadable_paths(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "pipe.gguf")
    for name, problem in {
        "absent.gguf": "no such file",
        "": "this is a folder",
        "empty.gguf": "is empty",
        "pipe.gguf": "not a regular file",
        "nul\0.gguf": "cannot be read",
        "x" * 300: "cannot be read",
    }.items():
        with pytest.raises(WebrelaxError, match=problem) as caught:
            open_gguf(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (struct.pack("<Q", 60) + b'{"__metadata__":{}}', "safetensors"),
        (b"<!DOCTYPE html>\n<html>", "web page"),
        (b"\n  <html><body>404", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"tjgg\x03\0\0\0", "before GGUF"),
        (bytes(64), "zeros"),
        (b"FUGG", "the bytes 46 55 47 47"),
        (b"G", "the bytes 47"),
    ],
)
def test_other_formats_are_recognized(opened: Callable[[bytes], GGUFFile], content: bytes, guess: str) -> None:
    with pytest.raises(WebrelaxError, match=f"not a GGUF file; .*{guess}"):
        opened(content)


def nested_arrays(depth: int) -> bytes:
    return struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)


MALFORMED: dict[str, tuple[bytes, str]] = {
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "version 1": (gguf_bytes(version=1), "version 1 is not supported"),
    "version 4": (gguf_bytes(version=4), "version 4 is not supported"),
    "tensor count": (gguf_bytes(n_tensors=1 << 60), f"claims {1 << 60} tensors"),
    "metadata count": (gguf_bytes(n_entries=(1 << 64) - 1), "metadata entries, more than can follow"),
    "key length": (gguf_bytes((struct.pack("<Q", 1 << 63) + bytes(64),)), "metadata key 0 claims a length"),
    "key beyond the end": (gguf_bytes((struct.pack("<Q", 5000) + bytes(64),)), "ends inside metadata key 0"),
    "string length": (gguf_bytes((entry("k", 8, struct.pack("<Q", 1 << 40)),)), "of 'k' claims a length"),
    "array length": (gguf_bytes((entry("k", ARRAY, struct.pack("<IQ", 8, 1 << 61)),)), "array elements in .*'k'"),
    "array of arrays": (gguf_bytes((entry("k", ARRAY, struct.pack("<IQ", 9, 1 << 50)),)), "array elements in .*'k'"),
    "array type": (gguf_bytes((entry("k", ARRAY, struct.pack("<IQ", 77, 1)),)), "unknown value type 77"),
    "array depth": (gguf_bytes((entry("k", ARRAY, nested_arrays(50)),)), "nests arrays more than 4 deep"),
    "value type": (gguf_bytes((entry("k", 13, bytes(8)),)), "'k' has the unknown value type 13"),
    "boolean": (gguf_bytes((entry("k", 7, b"\2"),)), "neither 0 nor 1"),
    "not UTF-8": (gguf_bytes((entry("k", 8, string(b"\xff\xfe")),)), "'k' is not UTF-8"),
    "key twice": (gguf_bytes((entry("k", 0, b"1"), entry("k", 0, b"2"))), "key 'k' occurs twice"),
    "alignment 0": (gguf_bytes((entry("general.alignment", U32, bytes(4)),)), "is 0; it must be a power of two"),
    "alignment 33": (gguf_bytes((entry("general.alignment", U32, struct.pack("<I", 33)),)), "power of two"),
    "alignment text": (gguf_bytes((entry("general.alignment", 8, string("32")),)), "is '32'; it must be"),
    "tensor twice": (gguf_bytes(tensors=(tensor(), tensor())), "tensor 'w' occurs twice"),
    "dimensions": (gguf_bytes(tensors=(tensor(n_dims=5),)), "'w' has 5 dimensions"),
    "absurd dimensions": (gguf_bytes(tensors=(tensor(n_dims=0xFFFFFFFF),)), "dimensions; at most 4"),
    "dimension of 0": (gguf_bytes(tensors=(tensor(dims=(32, 0)),)), "dimension of 0"),
    "overflow": (gguf_bytes(tensors=(tensor(dims=(1 << 62,) * 4),)), "ends before the data of tensor 'w'"),
    "type id": (gguf_bytes(tensors=(tensor(type_id=4),)), "tensor 'w' has the unknown type id 4"),
    "row length": (gguf_bytes(tensors=(tensor(dims=(33, 2)),)), "no multiple of 32 elements"),
    "tensor alignment": (gguf_bytes(tensors=(tensor(offset=8),)), "offset 8, which is no multiple of the alignment"),
    "data outside": (gguf_bytes(tensors=(tensor(offset=64),)), "ends before the data of tensor 'w'"),
    "data far outside": (gguf_bytes(tensors=(tensor(offset=(1 << 64) - 32),)), "the data of tensor 'w'"),
    "long name": (gguf_bytes(tensors=(tensor("n\n" * 500, type_id=99),)), "unknown type id 99"),
}


@pytest.mark.parametrize(("content", "problem"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_headers(opened: Callable[[bytes], GGUFFile], content: bytes, problem: str) -> None:
    tracemalloc.start()
    begun = time.perf_counter()
    with pytest.raises(WebrelaxError, match=problem) as caught:
        opened(content)
    assert time.perf_counter() - begun < 1
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    message = str(caught.value)
    assert "model.gguf: " in message
    assert "\n" not in message
    assert len(message.rpartition("model.gguf")[2]) < 250


def test_too_many_array_elements(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes((entry("k", ARRAY, struct.pack("<IQ", 0, (1 << 24) + 1)),)))
    os.truncate(path, 1 << 25)  # sparse
    with pytest.raises(WebrelaxError, match="more than 16777216 array elements"):
        open_gguf(path)


def test_truncated_anywhere(opened: Callable[[bytes], GGUFFile], sample: bytes) -> None:
    for size in range(len(sample) - 32):  # the last tensor is padded to the alignment
        with pytest.raises(WebrelaxError, match=r"empty|cut short|not a GGUF file"):
            opened(sample[:size])


def test_real_model_truncated(smollm2_path: Path, tmp_path: Path) -> None:
    full = smollm2_path.read_bytes()
    header = open_gguf(smollm2_path).tensors["token_embd.weight"].offset
    for size in (0, 3, 4, 7, 15, 23, 24, 100, 5000, header // 2, header - 1, header, len(full) // 2, len(full) - 1):
        path = tmp_path / "cut.gguf"
        path.write_bytes(full[:size])
        with pytest.raises(WebrelaxError, match=r"cut\.gguf: .*(cut short|empty|not a GGUF)"):
            open_gguf(path)


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, bytes]]:
    kinds = st.sampled_from(["replace", "insert", "delete"])
    interesting = st.sampled_from([b"\xff" * 8, bytes(8), b"\0" * 7 + b"\x80", b"\xff\xff\xff\xff", b"\x09\0\0\0"])
    one = st.tuples(kinds, st.integers(0, 4000), st.binary(min_size=1, max_size=9) | interesting)
    return draw(st.lists(one, min_size=1, max_size=4))


@settings(max_examples=400, deadline=2000)
@given(damage=damages(), cut=st.none() | st.integers(0, 4000))
def test_random_damage_is_an_error_or_harmless(
    sample: bytes, tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[str, int, bytes]], cut: Any
) -> None:
    content = bytearray(sample)
    for kind, position, data in damage:
        position %= len(content) or 1
        if kind == "insert":
            content[position:position] = data
        elif kind == "delete":
            del content[position : position + len(data)]
        else:
            content[position : position + len(data)] = data
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(content[:cut]))
    try:
        model = open_gguf(path)
    except WebrelaxError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        touch(model)
