"""`webrelax perplexity`, against PyTorch's cross entropy and Hugging Face's implementation of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from webrelax.packaging.cli import main
from webrelax.packaging.engine import Engine
from webrelax.packaging.perplexity import surprise_of, surprises
from webrelax.packaging.reader import Bundle, open_bundle
from webrelax.packaging.text import Text

from ..compiler.frontend.small_gguf import small_llama
from .test_oracle import reference_model

VOCABULARY = 50


class Table:
    """A model whose logits are a random function of the last token and its position."""

    description, dispatches = "table", 0

    def __init__(self) -> None:
        self.logits = np.random.default_rng(0).normal(0, 4, (64, VOCABULARY, VOCABULARY)).astype(np.float32)
        self.seen: list[tuple[str, int, int]] = []

    def call(self, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        self.seen.append((name, inputs["positions"][-1], inputs["tokens"][-1]))
        return {"logits": self.logits[inputs["positions"][-1], inputs["tokens"][-1]][None]}


@pytest.mark.parametrize("window", [2, 3, 7, 20, 64])
@pytest.mark.parametrize("length", [2, 3, 20, 39, 40])
def test_every_token_but_the_first_is_foreseen_once(window: int, length: int) -> None:
    ids = np.random.default_rng(length).integers(0, VOCABULARY, length).tolist()
    model = Table()
    bundle = SimpleNamespace(manifest={"model": {"context": 64, "prefill_chunk": 8}})
    found = list(surprises(Engine(cast(Bundle, bundle), model), ids, window))
    # In a window that begins at token s, token t is foreseen from the logits at position t - 1 - s.
    starts = [(t - 1) // (window - 1) * (window - 1) for t in range(1, length)]
    rows = [model.logits[t - 1 - s, ids[t - 1]] for t, s in zip(range(1, length), starts, strict=True)]
    expected = torch.nn.functional.cross_entropy(torch.tensor(np.array(rows)), torch.tensor(ids[1:]), reduction="none")
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
    assert len(model.seen) == length - 1


def test_far_logits() -> None:
    logits = np.array([-1e4, 0.0, 3e4], np.float32)
    assert surprise_of(logits, 2) == 0.0
    assert surprise_of(logits, 0) == pytest.approx(4e4)


def test_smollm2_against_transformers(
    smollm2_exact_site: Path, smollm2_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs/architecture.md").read_text("utf-8")
    (tmp_path / "text.txt").write_text(text, "utf-8")
    command = ["perplexity", str(smollm2_exact_site), str(tmp_path / "text.txt"), "--target", "wasm", "--json"]
    assert main([*command, "--tokens", "90", "--window", "60"]) == 0
    report = json.loads(capsys.readouterr().out)
    ids = Text(open_bundle(smollm2_exact_site)).encode(text)[:90]
    model, losses = reference_model(smollm2_path), []
    for part in (ids[:60], ids[59:]):
        with torch.no_grad():
            logits = model(torch.tensor([part])).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(part[1:]), reduction="none"))
    assert report["tokens"] == 89
    assert report["nats_per_token"] == pytest.approx(float(torch.cat(losses).mean()), abs=0.005)
    assert report["perplexity"] == pytest.approx(float(torch.cat(losses).mean().exp()), rel=0.005)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("perplexity")
    assert main(["build", str(small_llama(folder / "tiny.gguf")), "-o", str(folder / "site"), "--context", "16"]) == 0
    return folder / "site"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"", [], "a text of 0 tokens has none that could be foreseen: give a longer one"),
        (b"some words", ["--tokens", "1"], "a text of 1 tokens has none"),
        (b"caf\xe9", [], "byte 3 is not UTF-8: convert the text, or give another"),
        (b"some words", ["--window", "17"], "--window is 17; it must be from 2 to the model's context of 16 tokens"),
        (b"some words", ["--window", "1"], "--window is 1; it must be from 2"),
        (None, [], "text.txt: No such file or directory"),
    ],
)
def test_what_cannot_be_measured(
    site: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    options: list[str],
    message: str,
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    assert main(["perplexity", str(site), str(path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_answer_in_words(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("some words and some more words to read")
    assert main(["perplexity", str(site), str(tmp_path / "text.txt"), "--interpreter", "--tokens", "8"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("perplexity ")
    assert line.endswith("in windows of 16\n")
