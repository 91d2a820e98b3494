"""`webrelax generate`: continues a prompt with a site's model, on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..compiler.errors import WebrelaxError
from .engine import Backend, Engine, InterpreterBackend, NativeBackend, Stats, check_prompt, device_of
from .reader import Bundle, open_bundle
from .sampling import Sampling
from .text import Text


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax generate --help`."""
    bundle = open_bundle(args.site, args.model, args.target)
    text = Text(bundle)
    prompt = text.encode(args.prompt) if args.raw else text.encode_chat([{"role": "user", "content": args.prompt}])
    check_prompt(prompt, bundle.manifest["model"]["context"])
    backend = InterpreterBackend(bundle) if args.interpreter else native_backend(bundle)
    engine = Engine(bundle, backend)
    sampling = _sampling(args, text.defaults)
    stats = Stats()
    made: list[int] = []
    shown = ""
    top: list[list[float]] = []
    if args.top_logits:
        top = top_logits(engine.prefill(prompt), args.top_logits)
        engine.cached.clear()
    for token in engine.generate(prompt, args.max_tokens, sampling, text.ends, stats):
        made.append(token)
        if not args.json:
            shown = _show_more(text.decode(made), shown)
    if args.json:
        print(json.dumps(_report(bundle, backend, prompt, made, text.decode(made), top, stats), ensure_ascii=False))
    else:
        print(text.decode(made)[len(shown) :])
    return 0


def native_backend(bundle: Bundle) -> Backend:
    """The model on this machine. Raises WebrelaxError, which names the alternative, where there is no device."""
    try:
        device = device_of(bundle)
    except WebrelaxError as error:
        raise WebrelaxError(f"{error}; or use --interpreter, which is slow") from error
    return NativeBackend(bundle, device)


def top_logits(logits: Any, count: int) -> list[list[float]]:
    """[id, logit] of the largest logits, largest first, the smaller id first among equals."""
    order = (-logits).argsort(kind="stable")[:count]
    return [[int(i), float(logits[i])] for i in order]


def _sampling(args: argparse.Namespace, defaults: dict[str, Any]) -> Sampling:
    """What the user asked for, else what the model's generation_config.json says, else greedy."""
    temperature = args.temperature
    if temperature is None:
        temperature = float(defaults.get("temperature") or 0.0) if defaults.get("do_sample", True) else 0.0
    top_k = args.top_k if args.top_k is not None else int(defaults.get("top_k") or 0)
    top_p = args.top_p if args.top_p is not None else float(defaults.get("top_p") or 1.0)
    return Sampling(temperature, top_k, top_p, args.seed)


def _show_more(text: str, shown: str) -> str:
    """Prints the text that came since; half a character at its end waits for the rest."""
    ready = text.rstrip("\ufffd")
    if len(ready) > len(shown):
        sys.stdout.write(ready[len(shown) :])
        sys.stdout.flush()
        return ready
    return shown


def _report(
    bundle: Bundle,
    backend: Backend,
    prompt: list[int],
    made: list[int],
    text: str,
    top: list[list[float]],
    stats: Stats,
) -> dict[str, Any]:
    decoded = max(0, len(made) - 1)
    return {
        "prompt_ids": prompt,
        "token_ids": made,
        "text": text,
        "top_logits": top,
        "stats": {
            "model": bundle.manifest["name"],
            "profile": bundle.profile,
            "device": backend.description,
            "finish_reason": stats.finish_reason,
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": len(made),
            "time_to_first_token_s": stats.prefill_s,
            "prefill_tokens_per_s": stats.prompt_tokens / stats.prefill_s if stats.prefill_s else None,
            "decode_tokens_per_s": decoded / stats.decode_s if decoded and stats.decode_s else None,
            "dispatches_last_step": backend.dispatches,
        },
    }
