"""Reading safetensors files and folders, against the `safetensors` package, and what is said of damaged ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend.safetensors import INDEX, SINGLE, open_folder, open_safetensors

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def random_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (3, 5), "b": (7,), "scalar": (), "empty": (0, 4), "cube": (2, 3, 4)}
    kinds = list(TYPES.values())
    return {
        name: (torch.randn(shape, generator=generator) * 9).to(kinds[at % len(kinds)])
        for at, (name, shape) in enumerate(shapes.items())
    }


def test_tensors_are_those_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file(random_tensors(), path, metadata={"format": "pt"})
    expected, found = load_file(path), open_safetensors(path)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.shape == tuple(expected[name].shape)
        assert TYPES[tensor.type] == expected[name].dtype
        assert tensor.bytes().tobytes() == expected[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def split(folder: Path) -> dict[str, torch.Tensor]:
    """A folder of two parts and an index."""
    tensors = random_tensors()
    names = list(tensors)
    parts = {"part-1.safetensors": names[:2], "part-2.safetensors": names[2:]}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / part)
    listed = {name: part for part, held in parts.items() for name in held}
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}))
    return tensors


def test_a_folder_of_parts(tmp_path: Path) -> None:
    tensors = split(tmp_path)
    found = open_folder(tmp_path)
    assert found.keys() == tensors.keys()
    assert found["cube"].shape == (2, 3, 4)


def test_a_folder_of_one_file(tmp_path: Path) -> None:
    save_file(random_tensors(), tmp_path / SINGLE)
    assert open_folder(tmp_path).keys() == random_tensors().keys()


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x01\x02", "cut short or damaged: its header claims"),
        (struct.pack("<Q", 1 << 40) + b"{}", "its header claims 1099511627776 bytes of 10"),
        (file_of(b"{nonsense"), "its JSON cannot be read"),
        (file_of(b"[1]"), "its JSON is no object"),
        (file_of(b"[" * 100_000), "its JSON cannot be read"),
        (file_of(b'{"w": 1, "w": 2}'), "a name occurs twice"),
        (file_of({"w": 3}), "tensor 'w' is not described"),
        (file_of({"w": entry(dtype="F7")}, bytes(8)), "has the type 'F7', which is not known"),
        (file_of({"w": entry(shape=(-1,))}, bytes(8)), "the shape or the place of tensor 'w' is unusable"),
        (file_of({"w": entry(shape=(True,))}, bytes(8)), "the shape or the place of tensor 'w' is unusable"),
        (file_of({"w": entry(offsets=(0,))}, bytes(8)), "the shape or the place of tensor 'w' is unusable"),
        (file_of({"w": entry(offsets=(8, 0))}, bytes(8)), "does not fit bytes 8 to 0 of its data"),
        (file_of({"w": entry()}, bytes(4)), "does not fit bytes 0 to 8 of its data"),
        (file_of({"w": entry(shape=(1 << 62, 1 << 62))}, bytes(8)), "does not fit bytes 0 to 8 of its data"),
        (file_of({"w": entry(), "v": entry()}, bytes(8)), "do not follow those before them"),
        (file_of({"w": entry()}, bytes(12)), "its tensors end at byte"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(WebrelaxError) as caught:
        open_safetensors(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 400))
def test_any_damage_is_an_error_or_harmless(tmp_path: Path, at: int, byte: int, cut: int) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(4, 4), "v": torch.zeros(3, dtype=torch.float16)}, path)
    content = bytearray(path.read_bytes())
    content[at % len(content)] = byte
    path.write_bytes(content[: len(content) - cut % len(content)])
    try:
        tensors = open_safetensors(path)
    except WebrelaxError:
        return
    for tensor in tensors.values():
        assert len(tensor.bytes()) == tensor.nbytes


def test_folders_that_lack_something(tmp_path: Path) -> None:
    def message() -> str:
        with pytest.raises(WebrelaxError) as caught:
            open_folder(tmp_path / "model")
        return str(caught.value)

    folder = tmp_path / "model"
    assert message() == f"{folder}: there is no model.safetensors, and no such folder"
    folder.mkdir()
    assert message() == f"{folder}: there is no model.safetensors and no {INDEX}"
    (folder / "pytorch_model.bin").write_bytes(b"x")
    assert "pytorch_model.bin is a PyTorch checkpoint: convert it to safetensors first" in message()
    split(folder)
    (folder / "part-2.safetensors").rename(tmp_path / "away")
    assert message() == f"{folder / 'part-2.safetensors'}: there is no such file"
    save_file({"scalar": torch.zeros(())}, folder / "part-2.safetensors")
    assert "part-2.safetensors lacks the tensor 'empty' that" in message()
    for index, expected in (
        ({}, "no 'weight_map'"),
        ({"weight_map": {"w": "../x"}}, "'../x', which is not in the folder"),
    ):
        (folder / INDEX).write_text(json.dumps(index))
        assert expected in message()
