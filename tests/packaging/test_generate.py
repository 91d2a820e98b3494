"""`generate` and `check` on machines and with prompts and numbers that are not as wished."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from webrelax.packaging.check import difference
from webrelax.packaging.cli import main

from ..compiler.frontend.small_gguf import small_llama


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generate")
    model = small_llama(folder / "tiny.gguf")
    assert main(["build", str(model), "-o", str(folder / "site"), "--context", "16", "--prefill-chunk", "8"]) == 0
    return folder / "site"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from webrelax.compiler.native.device import default_device

    wgpu = pytest.importorskip("wgpu")

    def refuse(**_: object) -> None:
        raise RuntimeError("Request adapter failed (2): none\nand more lines")

    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", refuse)
    default_device.cache_clear()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", str(site), "hello", "--raw", "--max-tokens", "2"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "no usable GPU" in error
    assert "or use --interpreter" in error
    assert error.count("\n") == 1
    assert main([*command, "--interpreter"]) == 0
    assert main(["check", str(site)]) == 2


@pytest.mark.parametrize("package", ["wgpu", "tokenizers"])
def test_without_a_package(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    from webrelax.compiler.native.device import default_device

    default_device.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["generate", str(site), "hello", "--raw"]) == 2
    error = capsys.readouterr().err
    assert package in error
    assert "webrelax[native]" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("", "the prompt is empty"),
        ("x" * 17, "the prompt has 17 tokens, the model's context holds 16"),
        ("x" * 100_000, "the prompt has 100000 tokens"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_prompts_are_looked_at_first(site: Path, capsys: pytest.CaptureFixture[str], prompt: str, problem: str) -> None:
    assert main(["generate", str(site), prompt, "--raw"]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--temperature", "1", "--top-k", "100000"],
        ["--temperature", "1e-320"],
        ["--temperature", "1", "--top-p", "1e-320"],
        ["--temperature", "100", "--seed", str(2**53 - 1)],
        ["--top-logits", "100000"],
        ["--max-tokens", "2147483647"],
    ],
)
def test_numbers_at_their_ends(site: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        command = ["generate", str(site), "a\0b", "--raw", "--interpreter", "--json", "--max-tokens", "2", *options]
        assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert 0 <= len(report["token_ids"]) <= 14


@pytest.mark.parametrize(
    ("actual", "expected"), [([np.nan], [1.0]), ([1.0], [np.nan]), ([np.inf], [np.inf]), ([1.0, 2.0], [1.0, np.inf])]
)
def test_what_is_not_finite_differs(actual: list[float], expected: list[float]) -> None:
    assert difference(np.array(actual, np.float32), np.array(expected, np.float32)) == float("inf")
