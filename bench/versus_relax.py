"""Compiles one model with Apache TVM's Relax and with webrelax, in one run, and holds the difference against bars.

    bench/versus_relax.py [--tvm PYTHON] [--runs 3] [--value-layers 2] [--throughput-layers 2] [--json]

The model is a Llama of SmolLM2-135M's shape (30 layers, f32, random weights) for at most 2048 tokens. The default of
`--tvm` is where `make bench-relax` installs it. Logits are TVM's on the CPU and ours on this machine's Vulkan device.
Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend.llama import LlamaConfig
from webrelax.compiler.native.device import default_device
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.packaging.build import build

if not __package__:
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(Path(__file__).parents[1]))

from bench.decoder import (
    SMOLLM2,
    Array,
    Session,
    dispatches,
    export,
    random_tokens,
    random_weights,
    shallow,
    storage_bytes,
    wgsl_sizes,
)

ROOT = Path(__file__).parents[1]
BOUND = 2048
CHUNKS = (512, 2048)
PROMPT = 24
# On a machine that others use, a turn may take half as long again; the best of these does not.
ROUNDS = 8


def default_chunk() -> int:
    """The prefill chunk of `webrelax build`."""
    return int(inspect.signature(build).parameters["prefill_chunk"].default)


# --- TVM ---


def relax_weights(weights: Mapping[str, Array], layers: int) -> dict[str, Array]:
    """The weights as relax_side.py names them: query, key and value are one matrix, and so are gate and up."""
    merged = {
        "qkv": ("attention.query", "attention.key", "attention.value"),
        "output": ("attention.output",),
        "gate_up": ("feed_forward.gate", "feed_forward.up"),
        "down": ("feed_forward.down",),
        "attention_norm": ("attention_norm",),
        "feed_forward_norm": ("feed_forward_norm",),
    }
    given = {name: weights[name] for name in ("embedding.weight", "norm.weight")}
    for at in range(layers):
        for theirs, ours in merged.items():
            parts = [weights[f"layers.{at}.{name}.weight"] for name in ours]
            given[f"layers.{at}.{theirs}.weight"] = np.concatenate(parts)
    return given


def sizes(config: LlamaConfig) -> dict[str, int | float]:
    """The sizes that relax_side.py wants."""
    if not config.tied_embedding or config.interleaved_rope:
        raise WebrelaxError("relax_side.py has the model with a tied embedding and rotary pairs in halves only")
    return {key: value for key, value in asdict(config).items() if not isinstance(value, bool)}


def run_relax(
    python: Path, config: LlamaConfig, values: LlamaConfig, weights: Mapping[str, Array], runs: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """(what relax_side.py found, its logits). Raises WebrelaxError if there is no TVM, or if it fails."""
    if not python.exists():
        raise WebrelaxError(f"{python} does not exist: `make bench-relax` installs TVM, or name a Python that has it")
    *prompt, token = random_tokens(config, PROMPT + 1)
    job = {
        "model": sizes(config),
        "values": sizes(values),
        "bound": BOUND,
        "chunks": CHUNKS,
        "runs": runs,
        "prompt": prompt,
        "token": token,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job))
        given: dict[str, Any] = {**relax_weights(weights, values.layers)}
        np.savez(folder / "weights.npz", **given)
        side = subprocess.run(
            [python, Path(__file__).with_name("relax_side.py"), folder], capture_output=True, text=True, check=False
        )
        if side.returncode:
            last = (side.stderr.strip() or "no message").splitlines()[-1]
            raise WebrelaxError(f"TVM failed ({last}); it has to be apache-tvm 0.27: see `relax` in pyproject.toml")
        with np.load(folder / "logits.npz") as found:
            logits = dict(found)
        return json.loads((folder / "found.json").read_text()), logits


# --- webrelax ---


def compile_seconds(config: LlamaConfig, runs: int) -> list[float]:
    """Seconds of passes and code generation, from the traced module on, for a chunk as large as the context."""
    module = export(config, BOUND, BOUND)
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        compile(module)
        seconds.append(time.perf_counter() - start)
    return seconds


def own_counts(config: LlamaConfig, chunks: Sequence[int]) -> dict[str, Any]:
    """Dispatches, WGSL and memory."""
    largest = compile(export(config, BOUND, BOUND))
    # All scores of a larger chunk would not fit into a binding.
    plain = compile(export(config, BOUND, chunks[0]), library=())
    past = BOUND - 1
    return {
        "dispatches": {
            "decode": dispatches(largest, "decode", 1, past),
            "decode without library": dispatches(plain, "decode", 1, past),
            "prefill": dispatches(largest, "prefill", BOUND, 0),
            "prefill without library": dispatches(plain, "prefill", chunks[0], 0),
        },
        "wgsl": {"library": wgsl_sizes(largest), "without": wgsl_sizes(plain)},
        "memory": {
            "decode": storage_bytes(export(config, BOUND, 1, only="decode")),
            "prefill": {chunk: storage_bytes(export(config, BOUND, chunk, only="prefill")) for chunk in chunks},
        },
        "results": 4 * config.vocabulary,
    }


def own_logits(values: LlamaConfig, weights: Mapping[str, Array], chunk: int) -> dict[str, Array]:
    *prompt, token = random_tokens(values, PROMPT + 1)
    session = Session(Runner.of(compile(export(values, BOUND, chunk)), weights))
    return {"prefill": session.prefill(prompt, chunk), "decode": session.decode(token, PROMPT)}


def throughput(layers: int, chunks: Sequence[int], repeat: int) -> dict[int, float]:
    """Prefill tokens/s of a full context by chunk: the best of `repeat` rounds, in each of which each has a turn."""
    config = shallow(layers)
    weights, tokens = random_weights(config, BOUND), random_tokens(config, BOUND)
    sessions = {chunk: Session(Runner.of(compile(export(config, BOUND, chunk)), weights)) for chunk in chunks}
    for session in sessions.values():
        session.warm_up()
    seconds: dict[int, list[float]] = {chunk: [] for chunk in chunks}
    for _ in range(repeat):
        for chunk, session in sessions.items():
            seconds[chunk].append(session.prefill_seconds(tokens, chunk))
    return {chunk: BOUND / min(each) for chunk, each in seconds.items()}


# --- the bars ---


@dataclass(frozen=True)
class Bar:
    """One figure that has a limit. `relax` is TVM's figure for the same thing, where it has one."""

    name: str
    unit: str
    webrelax: float
    limit: float
    relax: float | None = None
    least: bool = False

    @property
    def passed(self) -> bool:
        return self.webrelax >= self.limit if self.least else self.webrelax <= self.limit

    @property
    def ratio(self) -> float | None:
        """Ours in terms of TVM's."""
        return self.webrelax / self.relax if self.relax else None


def bars(relax: Mapping[str, Any], own: Mapping[str, Any], layers: int) -> Iterator[Bar]:
    theirs = min(each["passes"] + each["codegen"] for each in relax["seconds"])
    yield Bar("compile: passes and code generation", "s", min(own["seconds"]), theirs / 2, theirs)
    launched = relax["decode"]["dispatches"]
    for what, a_layer in (("decode", 10), ("decode without library", 14)):
        yield Bar(f"dispatches, {what}", "", own["dispatches"][what], a_layer * layers + 6, launched)
    decode, prefill = (relax[name]["memory"]["planned"] for name in ("decode", "prefill"))
    yield Bar("activations, decode", "MB", own["memory"]["decode"] / 1e6, decode / 1e6, decode / 1e6)
    for chunk, size in own["memory"]["prefill"].items():
        yield Bar(f"activations, prefill, chunk {chunk}", "MB", size / 1e6, prefill / 4e6, prefill / 1e6)
    chunk, best = own["chunk"], max(own["throughput"].values())
    yield Bar(f"prefill, chunk {chunk} (default)", "tokens/s", own["throughput"][chunk], 0.9 * best, least=True)
    text = max(map(sum, own["wgsl"].values()))
    yield Bar("WGSL, all kernels", "KB", text / 1e3, relax["wgsl"] / 4e3, relax["wgsl"] / 1e3)
    largest, their_largest = max(map(max, own["wgsl"].values())), max(relax["kernels"].values())
    yield Bar("WGSL, largest kernel", "KB", largest / 1e3, 8192 / 1e3, their_largest / 1e3)
    for name, difference in own["differences"].items():
        yield Bar(f"logits of {name}, largest difference", "", difference, 1e-3)


def table(found: Sequence[Bar]) -> Iterator[str]:
    yield f"{'':<44}{'Relax':>10}{'webrelax':>10}{'ratio':>8}{'limit':>10}"
    for bar in found:
        theirs = "" if bar.relax is None else f"{bar.relax:.4g}"
        ratio = "" if bar.ratio is None else f"{bar.ratio:.3f}"
        name = f"{bar.name} [{bar.unit}]" if bar.unit else bar.name
        verdict = "ok" if bar.passed else "MISSED"
        yield f"{name:<44}{theirs:>10}{bar.webrelax:>10.4g}{ratio:>8}{bar.limit:>10.4g}  {verdict}"


def measure(python: Path, runs: int, value_layers: int, throughput_layers: int) -> dict[str, Any]:
    """Everything; `relax` and `webrelax` hold the figures, `bars` what they come to."""
    config, values = SMOLLM2, replace(SMOLLM2, layers=value_layers)
    chunks = tuple(sorted({default_chunk(), *CHUNKS}))
    weights = random_weights(values, BOUND)
    relax, their_logits = run_relax(python, config, values, weights, runs)
    seconds = compile_seconds(config, runs)
    logits = own_logits(values, weights, default_chunk())
    own = {
        "chunk": default_chunk(),
        "seconds": seconds,
        **own_counts(config, chunks),
        "throughput": throughput(throughput_layers, chunks, ROUNDS),
        "differences": {name: float(np.abs(logits[name] - their_logits[name]).max()) for name in logits},
        "largest logits": {name: float(np.abs(their_logits[name]).max()) for name in logits},
        "device": default_device().description,
    }
    found = list(bars(relax, own, config.layers))
    rows = [asdict(bar) | {"passed": bar.passed, "ratio": bar.ratio} for bar in found]
    settings = {"runs": runs, "value_layers": value_layers, "throughput_layers": throughput_layers, "bound": BOUND}
    return {"settings": settings, "relax": relax, "webrelax": own, "bars": rows, "table": list(table(found))}


def report(found: Mapping[str, Any]) -> Iterator[str]:
    relax, own, settings = found["relax"], found["webrelax"], found["settings"]
    yield f"Llama of SmolLM2-135M's shape, f32, at most {BOUND} tokens; apache-tvm {relax['version']}; {own['device']}"
    yield from found["table"]
    tokens = ", ".join(f"{chunk}: {speed:.1f}" for chunk, speed in own["throughput"].items())
    yield f"Prefill of {BOUND} tokens, tokens/s by chunk ({settings['throughput_layers']} layers): {tokens}"
    for name in ("prefill", "decode"):
        side = relax[name]
        yield (
            f"Relax, {name}: {side['operators']} operator calls, {side['programs']} program calls,"
            f" {side['dispatches']} dispatches; activations {side['memory']['unplanned'] / 1e6:.1f} MB without reuse;"
            f" results {side['memory']['results'] / 1e6:.1f} MB"
        )
    planned = ", ".join(f"{size['planned'] / 1e6:.1f} MB at {chunk}" for chunk, size in relax["chunks"].items())
    yield f"Relax, prefill planned for a smaller bound: {planned}"
    layers, magnitude = settings["value_layers"], max(own["largest logits"].values())
    yield f"Logits: of {layers} layers, {PROMPT} tokens and one more; the largest is {magnitude:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tvm", type=Path, default=ROOT / "build/tvm-venv/bin/python", help="a Python that has TVM")
    parser.add_argument("--runs", type=int, default=3, help="how often each side compiles; the best counts")
    parser.add_argument("--value-layers", type=int, default=2, help="layers of the model whose logits are compared")
    parser.add_argument("--throughput-layers", type=int, default=2, help="layers of the model whose prefill is timed")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    try:
        found = measure(options.tvm, options.runs, options.value_layers, options.throughput_layers)
    except WebrelaxError as error:
        print(f"versus_relax: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({key: value for key, value in found.items() if key != "table"}, indent=2))
    else:
        print("\n".join(report(found)))
    return 0 if all(bar["passed"] for bar in found["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
