"""What each step of the compiler brings (Relax, fig. 17): a Llama of SmolLM2-135M's shape with fewer layers, f32.

    bench/ablation.py [--layers 4] [--runs 10] [--json]

Rows add up: nothing (each operator runs alone, memory is planned); fusion, along chains and side by side; library
routines; captured functions, whose dispatches the host resolves once. `decode` is one token after 1024 others,
`prefill` the last 128 of those. Shares are of the operator calls of the traced function. All rows must give the same
logits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webrelax.compiler.codegen import generate
from webrelax.compiler.executable import Executable
from webrelax.compiler.frontend.llama import LlamaConfig
from webrelax.compiler.fusion.explain import explain
from webrelax.compiler.ir import Call, CallLibrary, CallTIR, Function, GetItem, Module, Name, all_bindings
from webrelax.compiler.native.device import Device
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import PASSES, Pass, lower
from webrelax.compiler.target import WEBGPU
from webrelax.compiler.wgsl.library import LIBRARY

if not __package__:
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(Path(__file__).parents[1]))

from bench.decoder import (
    Array,
    Session,
    dispatches,
    export,
    random_tokens,
    random_weights,
    shallow,
    storage_bytes,
)

CONTEXT, CHUNK, PAST = 2048, 128, 1024
TOLERANCE = 1e-3

LEVELS: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "+ fusion": ("fuse_ops", "fuse_tir", "merge_parallel"),
    "+ library": ("dispatch_library",),
    "+ capture": ("capture",),
}
"""The passes that each row adds to the one before it. All others are in every row."""


def steps(level: str) -> tuple[Pass, ...]:
    """The passes of a row, in the pipeline's order."""
    names = list(LEVELS)
    left_out = {step for name in names[names.index(level) + 1 :] for step in LEVELS[name]}
    return tuple(step for step in PASSES if step.name not in left_out)


def compile_with(module: Module, passes: Sequence[Pass]) -> Executable:
    stages = dict(lower(module, WEBGPU, passes))
    routines = [routine for entry in LIBRARY for routine in entry.routines]
    return generate(stages[passes[-1].name], WEBGPU, routines, stages, {})


# --- what each step touched ---


@dataclass(frozen=True)
class Shares:
    """How many of a function's operator calls share a kernel with another, went to a library routine, are captured."""

    operators: int
    fused: int
    library: int
    captured: int


def shares(stages: Mapping[str, Module], name: str) -> Shares:
    """Counts over the calls of a function as it was before any pass dispatched or lowered one."""
    before = stages["inline_calls"].functions[name]
    operators = {b.name.name for b in all_bindings(before.body) if isinstance(b.value, Call)}
    legalized = stages["legalize"].functions[name]
    owner = owners(operators, legalized)
    groups = [{owner[member] for member in kernel if member in owner} for kernel in kernels(stages, name)]
    routines = {owner[b.name.name] for b in all_bindings(legalized.body) if isinstance(b.value, CallLibrary)}
    captured = list(stages.values())[-1].functions[name].captured
    fused = set().union(*(group for group in groups if len(group) > 1))
    return Shares(len(operators), len(fused), len(routines), len(operators) if captured else 0)


def owners(operators: set[str], legalized: Function) -> dict[str, str]:
    """Which operator call each binding came from: passes put what they make of a call in front of its name."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    for binding in all_bindings(legalized.body):
        waiting.append(binding.name.name)
        if binding.name.name in operators:
            found |= dict.fromkeys(waiting, binding.name.name)
            waiting.clear()
    return found


def kernels(stages: Mapping[str, Module], name: str) -> list[set[str]]:
    """The bindings after legalizing that each kernel computes."""
    if "fuse_ops" not in stages:
        values = all_bindings(stages["legalize"].functions[name].body)
        return [{b.name.name} for b in values if isinstance(b.value, CallTIR | CallLibrary)]
    groups = {group[-1]: set(group) for group in explain(stages["legalize"], WEBGPU)[name].groups}
    merged: dict[str, set[str]] = {}
    for binding in all_bindings(stages["merge_parallel"].functions[name].body):
        root = binding.name.name
        match binding.value:
            case GetItem(Name(call), _) if root in groups:
                merged.setdefault(call, set()).update(groups[root])
            case CallTIR() | CallLibrary() if root in groups:
                merged.setdefault(root, set()).update(groups[root])
    return list(merged.values())


# --- measuring ---


class Watch(Device):
    """The device, and when the host had handed over the last work."""

    submitted = 0.0

    def submit(self, work: Sequence[Any]) -> None:
        super().submit(work)
        self.submitted = time.perf_counter()


@dataclass(frozen=True)
class Row:
    """A function at one level. `step` and `host` are the best of the runs: until the logits are there, and until the
    work is handed to the device. `storage` is what planning this function alone needs.
    """

    level: str
    function: str
    step_ms: float
    host_ms: float
    dispatches: int
    storage_bytes: int
    shares: Shares


@dataclass(frozen=True)
class Timed:
    """A level on the device, with the tokens in its cache."""

    level: str
    executable: Executable
    session: Session
    device: Watch
    logits: Mapping[str, Array]

    def run(self, function: str, tokens: Sequence[int]) -> tuple[float, float]:
        """(seconds until the logits are there, seconds until the work was handed over) of a step."""
        start = time.perf_counter()
        if function == "decode":
            self.session.decode(tokens[PAST], PAST)
        else:
            self.session.extend(tokens[PAST - CHUNK : PAST], PAST - CHUNK)
        return time.perf_counter() - start, self.device.submitted - start


def prepare(
    level: str, config: LlamaConfig, weights: Mapping[str, Array], tokens: Sequence[int], device: Watch
) -> Timed:
    executable = compile_with(export(config, CONTEXT, CHUNK), steps(level))
    session = Session(Runner.of(executable, weights, device=device))
    logits = {"prefill": session.prefill(tokens[:PAST], CHUNK), "decode": session.decode(tokens[PAST], PAST)}
    return Timed(level, executable, session, device, logits)


def measure(config: LlamaConfig, runs: int) -> tuple[list[Row], dict[str, float]]:
    """The rows, and for each level the largest difference of its logits from those of the first."""
    weights, tokens = random_weights(config, CONTEXT), random_tokens(config, PAST + 1)
    device = Watch()
    timed = [prepare(level, config, weights, tokens, device) for level in LEVELS]
    rows = []
    for function, count, past, turns in (("decode", 1, PAST, 10 * runs), ("prefill", CHUNK, PAST - CHUNK, runs)):
        # In turns, so that a busy moment of the machine meets all rows.
        seconds = [[each.run(function, tokens) for each in timed] for _ in range(turns)]
        for at, each in enumerate(timed):
            whole, host = (min(turn[at][part] for turn in seconds) for part in (0, 1))
            executable, alone = each.executable, export(config, CONTEXT, CHUNK, only=function)
            launched = dispatches(executable, function, count, past)
            rows.append(
                Row(
                    each.level,
                    function,
                    whole * 1e3,
                    host * 1e3,
                    launched,
                    storage_bytes(alone, steps(each.level)),
                    shares(executable.stages, function),
                )
            )
    first = timed[0].logits
    return rows, {t.level: max(float(np.abs(t.logits[f] - first[f]).max()) for f in first) for t in timed}


def table(rows: Sequence[Row]) -> Iterator[str]:
    for function in dict.fromkeys(row.function for row in rows):
        own = [row for row in rows if row.function == function]
        yield f"{function}, {own[0].shares.operators} operator calls"
        yield (
            f"  {'':<12}{'step ms':>10}{'host ms':>9}{'dispatches':>12}{'storage KB':>12}"
            f"{'fused':>8}{'library':>9}{'captured':>10}"
        )
        for row in own:
            of = row.shares.operators
            yield (
                f"  {row.level:<12}{row.step_ms:>10.1f}{row.host_ms:>9.2f}{row.dispatches:>12}"
                f"{row.storage_bytes / 1e3:>12.1f}{row.shares.fused / of:>8.0%}{row.shares.library / of:>9.0%}"
                f"{row.shares.captured / of:>10.0%}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (SmolLM2-135M has 30)")
    parser.add_argument(
        "--runs", type=int, default=10, help="how often prefill runs, and a tenth of decode; the best counts"
    )
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    config = shallow(options.layers)
    rows, differences = measure(config, options.runs)
    if options.json:
        print(json.dumps({"layers": options.layers, "rows": [asdict(row) for row in rows], "differences": differences}))
    else:
        runs = f"best of {options.runs} runs, of decode {10 * options.runs}"
        print(f"Llama of SmolLM2-135M's shape with {options.layers} layers, f32; {runs}")
        print("\n".join(table(rows)))
        print(f"Largest difference of logits between rows: {max(differences.values()):.1e}")
    if not all(difference <= TOLERANCE for difference in differences.values()):
        print(f"ablation: the rows do not give the same logits: {differences}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
