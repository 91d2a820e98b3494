"""Sites that were damaged or edited: every file, any value; the tools say so in one sentence and never crash."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.cli import main
from webrelax.packaging.reader import open_bundle

from ..compiler.frontend.small_gguf import small_llama

MANIFEST = "manifest.json"
GENERATE = ("generate", "hello", "--raw", "--interpreter", "--max-tokens", "2", "--json")
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 7, 1.5, "x", "../x", [], {}, 2**31, 2**60, float("nan")]
)

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    model = small_llama(folder / "tiny.gguf", metadata={"tokenizer.chat_template": template})
    assert main(["build", str(model), "-o", str(folder / "site"), "--context", "16", "--prefill-chunk", "8"]) == 0
    return folder / "site"


@pytest.fixture
def site(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "site")
    return tmp_path / "site"


def write(site: Path, name: str, content: bytes) -> None:
    """Puts a file into the model's folder, and its hash into the manifest."""
    folder = site / "models/tiny"
    (folder / name).write_bytes(content)
    if name != MANIFEST:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / MANIFEST).write_text(json.dumps(manifest))


def outcome(capsys: pytest.CaptureFixture[str], site: Path, command: tuple[str, ...]) -> str | None:
    """None where a command succeeds, its sentence where it refuses; any other end fails the test."""
    capsys.readouterr()
    code = main([command[0], str(site), *command[1:]])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) in ((0, 0), (2, 1)), error
    assert not code or error.startswith("webrelax: ")
    return error if code else None


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all parts of a JSON value; of long lists and maps, to some."""
    yield path
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys if len(keys) < 30 else [*keys[:2], keys[-1]]:
        yield from places(value[key], (*path, key))


def edited(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    result = copy.deepcopy(value)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return result


def damage(name: str, commands: tuple[tuple[str, ...], ...]) -> Callable[..., None]:
    """A test that takes away or replaces each part of a JSON file, one at a time."""

    @quick
    @given(data=st.data())
    def test(whole: Path, site: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
        good = json.loads((whole / "models/tiny" / name).read_bytes())
        path = data.draw(st.sampled_from([p for p in places(good) if p]))
        if data.draw(st.booleans()):
            bad = edited(good, path, lambda inner, key: inner.__delitem__(key))
        else:
            new = data.draw(ODD)
            bad = edited(good, path, lambda inner, key: inner.__setitem__(key, new))
        write(site, MANIFEST, (whole / "models/tiny" / MANIFEST).read_bytes())
        write(site, name, json.dumps(bad).encode())
        for command in commands:
            outcome(capsys, site, command)

    return test


test_manifest = damage(MANIFEST, (("inspect", "--json"), GENERATE))
test_kernels = damage("kernels-f32.json", (("inspect", "--json"),))
test_tokenizer = damage("tokenizer.json", (GENERATE,))
test_tokenizer_config = damage("tokenizer_config.json", (GENERATE,))
test_generation_config = damage("generation_config.json", (GENERATE,))


@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize(
    "name",
    [
        MANIFEST,
        "kernels-f32.json",
        "program-webgpu.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "module-webgpu.bin",
    ],
)
def test_files_cut_short(site: Path, capsys: pytest.CaptureFixture[str], name: str, part: float) -> None:
    path = site / "models/tiny" / name
    content = path.read_bytes()
    content = content[: int(len(content) * part)]
    command = ("inspect", "--json") if name in (MANIFEST, "kernels-f32.json", "module-webgpu.bin") else GENERATE
    path.write_bytes(content)
    assert name in (outcome(capsys, site, command) or "")
    if name != MANIFEST:
        write(site, name, content)
        assert outcome(capsys, site, command)


def test_files_that_are_not_there(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = site / "models/tiny/weights-000.bin"
    path.rename(path.with_suffix(".away"))
    assert "weights-000.bin is missing: build the site again" in (outcome(capsys, site, GENERATE) or "")
    path.mkdir()
    assert "weights-000.bin is missing" in (outcome(capsys, site, GENERATE) or "")
    path.rmdir()
    path.write_bytes(b"x")
    assert "weights-000.bin has 1 bytes, not" in (outcome(capsys, site, GENERATE) or "")


def test_json_that_is_none(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"", b"{", b"\xff", b"[" * 100_000, b"null", b"[]", b'{"format": 3}', b'{"format": "1"}'):
        write(site, MANIFEST, content)
        assert "manifest.json is damaged" in (outcome(capsys, site, ("inspect",)) or "")
    write(site, MANIFEST, b'{"format": 1}')
    assert "has format 1, this webrelax reads 3" in (outcome(capsys, site, ("inspect",)) or "")


@pytest.mark.parametrize("seed", range(120))
def test_the_stored_program(site: Path, seed: int) -> None:
    """Fields of another type, nodes of another class, words that are none: reading finds them all."""
    chance = random.Random(seed)
    stored = json.loads((site / "models/tiny/program-webgpu.json").read_bytes())
    nodes = stored["program"]["nodes"]
    at = chance.randrange(len(nodes))
    node = nodes[at]
    field = chance.randrange(len(node))
    match seed % 4:
        case 0:
            node[field] = chance.choice([None, True, -1, 1.5, "x", [], {}, {"ref": -1}, {"ref": 10**6}, {"a": 1}])
        case 1:
            del node[field]
        case 2:
            node.insert(field, {"ref": 0})
        case 3:
            node[0] = chance.choice([n[0] for n in nodes if n[0] != node[0]])
    write(site, "program-webgpu.json", json.dumps(stored).encode())
    with contextlib.suppress(WebrelaxError):
        open_bundle(site).program  # noqa: B018 - read on first use


def test_a_whole_program_is_read(site: Path) -> None:
    module, kernels = open_bundle(site).program
    assert set(module.functions) == {"prefill", "decode"}
    assert len(kernels) == len(open_bundle(site).kernels)


def test_bytecode_of_another_model(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = small_llama(tmp_path / "other.gguf", weight_type="Q8_0", metadata={"llama.block_count": 2})
    assert main(["build", str(other), "-o", str(tmp_path / "other"), "--context", "16"]) == 0
    bytecode = (tmp_path / "other/models/other/module-webgpu.bin").read_bytes()
    manifest = json.loads((site / "models/tiny" / MANIFEST).read_bytes())
    manifest["targets"]["webgpu"]["binding_sets"].append([])
    write(site, MANIFEST, json.dumps(manifest).encode())
    write(site, "module-webgpu.bin", bytecode)
    assert "module-webgpu.bin does not fit the manifest" in (outcome(capsys, site, ("inspect",)) or "")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda k: k.update(entry="nope"), "does not compile"),
        (lambda k: k.update(wgsl="fn main( {"), "does not compile"),
        (lambda k: k["access"].append("read"), "the GPU fails"),
    ],
)
def test_what_the_gpu_refuses(
    site: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Any], None], problem: str
) -> None:
    kernels = json.loads((site / "models/tiny/kernels-f32.json").read_bytes())
    for kernel in kernels["kernels"]:
        change(kernel)
    write(site, "kernels-f32.json", json.dumps(kernels).encode())
    assert problem in (outcome(capsys, site, ("generate", "hello", "--raw", "--max-tokens", "2")) or "")


def test_weights_that_are_not_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    bad = {"output_norm.weight": np.full(64, np.nan, np.float32)}
    model = small_llama(tmp_path / "tiny.gguf", tensors=bad)
    assert main(["build", str(model), "-o", str(tmp_path / "site"), "--context", "16"]) == 0
    error = outcome(capsys, tmp_path / "site", GENERATE)
    assert "numbers that are not finite" in (error or "")
