"""Activation memory with and without planning (Relax, table 2): `python bench/memory.py [--json] [--no-library]`.

A model runs prefill at several lengths, then a step of decoding for several numbers of sequences. Planned: the storages
and results of one plan, made for the largest. Baseline: a pool at run time that reuses blocks of exactly the same size,
one run after the other. Only programs are planned: there are no weights. Activations are f32 (the paper's are f16).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from webrelax.compiler.frontend import nn
from webrelax.compiler.frontend.export import Step
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import Function, FunctionBuilder, Module, ModuleBuilder, Shape, ShapeValue, Tensor
from webrelax.compiler.ir.liveness import tensor_lives
from webrelax.compiler.passes import peak_bytes, plan_memory, planned_bytes, unplanned_bytes
from webrelax.compiler.pipeline import Pass, passes
from webrelax.compiler.symbolic import Expr, Var, as_expr, evaluate
from webrelax.compiler.target import WEBGPU

SMOLLM2_135M = LlamaConfig(49152, 576, 30, 9, 3, 64, 1536, 1e-5, 1e5, True, True)
LLAMA3_8B = LlamaConfig(128256, 4096, 32, 32, 8, 128, 14336, 1e-5, 5e5, False, False)
PREFILL, DECODE = (128, 256, 512, 1024), (1, 16, 32, 64)
CONTEXT = 1024
# Planning only: nothing has to fit a device.
TARGET = replace(WEBGPU, binding_size=1 << 40, buffer_size=1 << 40)


@dataclass(frozen=True)
class Row:
    """Bytes of one experiment. `peak` is live at once in the largest run; `unplanned` is without any reuse there."""

    model: str
    function: str
    sizes: tuple[int, ...]
    unplanned: int
    baseline: int
    planned: int
    peak: int
    planning_seconds: float

    @property
    def reduction(self) -> float:
        """The share of the baseline that planning saves."""
        return 1 - self.planned / self.baseline


def trace(model: Llama, name: str, n: Expr, past: Expr, sequences: int, is_prefill: bool) -> Function:
    """n tokens after `past` ones: of one sequence for prefill, with its last logits, else each of its own."""
    graph = FunctionBuilder(name)

    def param(what: str, shape: Sequence[Expr | int], dtype: str) -> nn.Value:
        return nn.Value(graph, graph.param(what, Tensor(shape, dtype)))

    tokens, positions, owners = (param(what, (n,), "i32") for what in ("tokens", "positions", "sequences"))
    graph.param("past", Shape((past,)))
    shapes = {key: (sequences, *shape[1:]) for key, shape in model.cache_shapes(CONTEXT).items()}
    cache = {key: param(key, shape, "f32") for key, shape in shapes.items()}
    step = Step(tokens, positions, owners, nn.Value(graph, ShapeValue((past + (n if is_prefill else 1),))))
    if is_prefill:
        logits, after = model.forward(step, cache)
    else:
        x, after = model.embedding.forward(tokens), {}
        for at, layer in enumerate(model.layers):
            keys, values = f"keys_{at}", f"values_{at}"
            x, after[keys], after[values] = layer.forward(x, step, model.rope, cache[keys], cache[values])
        logits = model.output.project(model.norm.forward(x))
    consumed = [(4 + at, 1 + at) for at in range(len(cache))]
    return graph.finish(logits.atom, *(after[key].atom for key in cache), consumed=consumed)


def pool_bytes(module: Module, function: Function, runs: Sequence[dict[Var, int]]) -> int:
    """What a pool has allocated after these runs: a tensor takes a free block of its exact size, or gets a new one."""
    lives = tensor_lives(module, function)
    free: Counter[int] = Counter()
    total = 0
    for env in runs:
        sizes = {tensor: evaluate(size, env) for tensor, size in lives.sizes.items()}
        for at in range(lives.end + 1):
            for size in (sizes[t] for t in sizes if lives.born[t] == at):
                if free[size]:
                    free[size] -= 1
                else:
                    total += size
            free.update(sizes[t] for t in sizes if lives.dies[t] == at)
    return total


def measure(config: LlamaConfig, name: str, steps: Sequence[Pass]) -> Iterator[Row]:
    model = Llama(config, CONTEXT)
    n, b, past = Var("n", 1, max(PREFILL)), Var("b", 1, max(DECODE)), Var("m", 0, CONTEXT - 1)
    # The cache of a prefill is empty, that of decoding as long as it gets.
    prefill = trace(model, "prefill", n, as_expr(0), 1, True)
    decode = trace(model, "decode", b, past, max(DECODE), False)
    for function, variable, sizes in ((prefill, n, PREFILL), (decode, b, DECODE)):
        builder = ModuleBuilder()
        builder.add_function(function)
        module = builder.finish()
        for step in steps:
            module = step.run(module, TARGET)
        lowered = module.functions[function.name]
        runs = [{variable: size, past: CONTEXT - 1} for size in sizes]
        start = time.perf_counter()
        planned = plan_memory(module, TARGET)
        seconds = time.perf_counter() - start
        yield Row(
            name,
            function.name,
            sizes,
            unplanned_bytes(module)[function.name],
            pool_bytes(module, lowered, runs),
            planned_bytes(planned),
            peak_bytes(module, lowered),
            seconds,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--no-library", action="store_true", help="generate all kernels: scores lie in memory")
    options = parser.parse_args()
    steps = passes(()) if options.no_library else passes()
    before = steps[: [step.name for step in steps].index("plan_memory")]
    models = ((SMOLLM2_135M, "SmolLM2-135M"), (LLAMA3_8B, "Llama3-8B"))
    rows = [row for config, name in models for row in measure(config, name, before)]
    if options.json:
        print(json.dumps([asdict(row) | {"reduction": row.reduction} for row in rows], indent=2))
        return
    print("Activation memory, MiB (f32)")
    print(f"{'model':<14}{'runs':<28}{'no reuse':>10}{'pool':>9}{'planned':>9}{'saved':>7}{'peak':>9}{'seconds':>9}")
    for row in rows:
        numbers = "".join(f"{size / 2**20:>{width}.1f}" for size, width in ((row.unplanned, 10), (row.baseline, 9)))
        runs = f"{row.function} {', '.join(map(str, row.sizes))}"
        print(
            f"{row.model:<14}{runs:<28}{numbers}{row.planned / 2**20:>9.1f}{row.reduction:>7.0%}"
            f"{row.peak / 2**20:>9.1f}{row.planning_seconds:>9.2f}"
        )


if __name__ == "__main__":
    main()
