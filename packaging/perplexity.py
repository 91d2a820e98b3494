"""`webrelax perplexity`: how well a site's model foresees a text, on this machine: what quantization has cost."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.errors import WebrelaxError
from .engine import Engine, InterpreterBackend
from .generate import native_backend
from .reader import open_bundle
from .text import Text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WINDOW = 512


@dataclass(frozen=True)
class Surprise:
    """The negative log-likelihoods, in nats, of the tokens of a text that were foreseen from those before them."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Nats a token."""
        return sum(self.values) / len(self.values)

    @property
    def perplexity(self) -> float:
        """e to the mean: that of a choice among so many tokens that are all as likely."""
        return exp(self.mean)


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax perplexity --help`."""
    content = read_text(args.text)
    bundle = open_bundle(args.site, args.model, args.target)
    context = bundle.manifest["model"]["context"]
    window = min(WINDOW, context) if args.window is None else args.window
    if not 2 <= window <= context:
        raise WebrelaxError(f"--window is {window}; it must be from 2 to the model's context of {context} tokens")
    ids = Text(bundle).encode(content)[: args.tokens]
    if len(ids) < 2:
        raise WebrelaxError(
            f"{args.text}: a text of {len(ids)} tokens has none that could be foreseen: give a longer one"
        )
    backend = InterpreterBackend(bundle) if args.interpreter else native_backend(bundle)
    found: list[float] = []
    for value in surprises(Engine(bundle, backend), ids, window):
        found.append(value)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(found)} tokens, perplexity {Surprise(tuple(found)).perplexity:.3f} ")
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    surprise = Surprise(tuple(found))
    if args.json:
        report = {
            "model": bundle.manifest["name"],
            "device": backend.description,
            "window": window,
            "tokens": len(found),
            "perplexity": surprise.perplexity,
            "nats_per_token": surprise.mean,
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(f"perplexity {surprise.perplexity:.4f} over {len(found)} tokens, in windows of {window}")
    return 0


def read_text(path: Path) -> str:
    """The text of a file. Raises WebrelaxError where it is not UTF-8."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise WebrelaxError(f"{path}: byte {error.start} is not UTF-8: convert the text, or give another") from None


def surprises(engine: Engine, ids: Sequence[int], window: int) -> Iterator[float]:
    """-log p of each token given those before it in its window, in nats; the first token of a window has none.

    A window begins as a new conversation; where they are cut, a token at the cut is the last of one window and the
    first of the next, so that each but the text's first is foreseen once.
    """
    for start in range(0, len(ids) - 1, window - 1):
        part = ids[start : start + window]
        engine.cached.clear()
        logits = engine.prefill(part[:1])
        for at, token in enumerate(part[1:], 2):
            yield surprise_of(logits, token)
            if at < len(part):
                logits = engine.decode(token)


def surprise_of(logits: Array, token: int) -> float:
    """-log softmax(logits)[token], in double precision."""
    import numpy as np

    wide = logits.astype(np.float64)
    top = wide.max()
    return float(log(np.exp(wide - top).sum()) + top - wide[token])
