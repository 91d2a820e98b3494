"""`check`, `inspect` and `generate`: their surface, and that `check` can fail."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from webrelax.packaging.cli import main
from webrelax.packaging.engine import Engine, InterpreterBackend
from webrelax.packaging.reader import open_bundle
from webrelax.packaging.text import Text

from ..compiler.frontend.small_gguf import small_llama


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a context of 48 tokens and chunks of 16."""
    folder = tmp_path_factory.mktemp("tiny")
    model = small_llama(folder / "tiny.gguf")
    assert main(["build", str(model), "-o", str(folder / "site"), "--context", "48", "--prefill-chunk", "16"]) == 0
    return folder / "site"


def output(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> Any:
    """What a command with --json prints."""
    capsys.readouterr()
    assert main([*command, "--json"]) == code
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_check_passes_on_every_kernel(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = output(capsys, "check", str(site))
    assert report["failed"] == 0
    assert len(report["kernels"]) == len(open_bundle(site).kernels)
    cases = {k["kernel"]: k["cases"] for k in report["kernels"]}
    assert cases["attention_prefill"] > 20  # two symbolic variables
    assert max(k["difference"] for k in report["kernels"]) < report["tolerance"]


def test_check_finds_a_wrong_kernel(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(site, broken)
    (path,) = broken.glob("models/*/program-webgpu.json")
    text = path.read_text()
    assert text.count("inverseSqrt") >= 2
    path.write_text(text.replace("inverseSqrt(", "sqrt(1.01 + "))
    (manifest,) = broken.glob("models/*/manifest.json")
    assert main(["check", str(broken)]) == 2  # the hash does not fit
    assert "damaged" in capsys.readouterr().err
    listed = json.loads(manifest.read_text())
    import hashlib

    listed["files"]["program-webgpu.json"] = {
        "size": len(path.read_bytes()),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    manifest.write_text(json.dumps(listed))
    report = output(capsys, "check", str(broken), "--kernel", "*norm*", code=1)
    assert report["failed"] == len(report["kernels"]) > 0


def test_check_names(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(site), "--kernel", "nothing*"]) == 2
    assert "nothing*" in capsys.readouterr().err


def test_inspect(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = output(capsys, "inspect", str(site))
    assert set(report["functions"]) == {"prefill", "decode"}
    assert report["dispatches"] == {name: f["dispatches"] for name, f in report["functions"].items()}
    for name in report["functions"]:
        assert 0 < report["dispatches"][name] <= 2 * 16 + 6
    bundle = open_bundle(site)
    assert report["storages"] == {b.name: b.size for b in bundle.buffers if b.kind == "storage"}
    assert report["memory"]["storage"] == sum(report["storages"].values())
    assert len(report["kernels"]) == len(bundle.kernels)
    assert sum(k["dispatches"] for k in report["kernels"]) == sum(report["dispatches"].values())
    assert main(["inspect", str(site)]) == 0


@pytest.mark.parametrize("name", ["start", "legalize", "fuse_ops", "fuse_tir", "plan_memory", "lower_shapes"])
def test_inspect_a_pass(site: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    capsys.readouterr()
    assert main(["inspect", str(site), "--pass", name]) == 0
    text = capsys.readouterr().out
    assert "def prefill(" in text
    assert "def decode(" in text
    assert ("fused def" in text) == (name == "fuse_ops")
    assert ("@ s0[" in text) == (name in ("plan_memory", "lower_shapes"))


def test_inspect_names_passes(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(site), "--pass", "nonsense"]) == 2
    assert "legalize" in capsys.readouterr().err


@pytest.mark.parametrize("where", [[], ["--interpreter"]])
def test_generate(site: Path, capsys: pytest.CaptureFixture[str], where: list[str]) -> None:
    command = [
        "generate",
        str(site),
        "hello",
        "--raw",
        "--temperature",
        "0",
        "--max-tokens",
        "5",
        "--top-logits",
        "20",
        *where,
    ]
    report = output(capsys, *command)
    bundle = open_bundle(site)
    assert report["prompt_ids"] == Text(bundle).encode("hello")
    assert 1 <= len(report["token_ids"]) <= 5
    assert report["text"] == Text(bundle).decode(report["token_ids"])
    logits = Engine(bundle, InterpreterBackend(bundle)).prefill(report["prompt_ids"])
    order = np.argsort(-logits, kind="stable")[:20]
    assert [i for i, _ in report["top_logits"]] == order.tolist()
    assert np.allclose([v for _, v in report["top_logits"]], logits[order], atol=1e-4)
    assert report["token_ids"][0] == report["top_logits"][0][0]
    assert report["stats"]["completion_tokens"] == len(report["token_ids"])


def test_generate_is_repeatable_with_a_seed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", str(site), "hello", "--raw", "--temperature", "1.5", "--max-tokens", "12"]
    first, again = (output(capsys, *command, "--seed", "7") for _ in range(2))
    other = output(capsys, *command, "--seed", "8")
    assert first["token_ids"] == again["token_ids"] != other["token_ids"]


def test_the_end_of_the_context(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt that does not fit is refused; a reply stops at the bound."""
    assert main(["generate", str(site), "x" * 49, "--raw"]) == 2
    assert "49 tokens" in (error := capsys.readouterr().err)
    assert "48" in error
    report = output(capsys, "generate", str(site), "x" * 40, "--raw", "--temperature", "0", "--max-tokens", "100")
    assert report["stats"]["finish_reason"] in ("length", "stop")
    if report["stats"]["finish_reason"] == "length":
        assert len(report["token_ids"]) == 48 - 40 + 1


def test_the_vm_refuses_what_is_above_the_bound(site: Path) -> None:
    from webrelax.compiler.vm import Machine, VMError

    bundle = open_bundle(site)
    machine = Machine(bundle.bytecode)
    machine.call("decode", [1, 1, 1, 47])
    with pytest.raises(VMError, match="decode"):
        machine.call("decode", [1, 1, 1, 48])
    with pytest.raises(VMError, match="at most 48"):
        machine.call("prefill", [16, 16, 16, 33])
    with pytest.raises(VMError, match="dimension 0 of positions"):
        machine.call("prefill", [3, 2, 3, 0])
    with pytest.raises(VMError, match="at most 16"):
        machine.call("prefill", [17, 17, 17, 0])


def test_sites_that_are_none(tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check"], ["inspect"], ["generate"]):
        rest = ["hello"] if command == ["generate"] else []
        assert main([*command, str(tmp_path), *rest]) == 2
        assert "webrelax build" in capsys.readouterr().err
        assert main([*command, str(site), *rest, "--model", "other"]) == 2
        assert "other" in capsys.readouterr().err
