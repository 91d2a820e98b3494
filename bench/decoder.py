"""The model that the comparisons with Relax run: a Llama with random f32 weights, on this machine's Vulkan device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webrelax.compiler.executable import Executable
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama, LlamaConfig
from webrelax.compiler.ir import Module
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.passes.plan_memory import fixed_size
from webrelax.compiler.pipeline import PASSES, Pass, lower
from webrelax.compiler.vm import Command, Machine, Suspended

Array = np.ndarray[Any, Any]

# SmolLM2-135M's sizes. Rotary pairs are halves of a head, as in the Hugging Face model.
SMOLLM2 = LlamaConfig(49152, 576, 30, 9, 3, 64, 1536, 1e-5, 1e5, True, False)


def shallow(layers: int) -> LlamaConfig:
    """SmolLM2's shape with fewer layers, and the vocabulary in proportion: the output layer weighs as it does there."""
    return replace(SMOLLM2, layers=layers, vocabulary=SMOLLM2.vocabulary * layers // SMOLLM2.layers)


def export(config: LlamaConfig, context: int, chunk: int, only: str | None = None) -> Module:
    """The module with `prefill` (up to `chunk` tokens) and `decode`, or only one of the two."""
    module = export_decoder(Llama(config, context), context, chunk).module
    return module if only is None else replace(module, functions={only: module.functions[only]})


def random_weights(config: LlamaConfig, context: int, seed: int = 0) -> dict[str, Array]:
    """f32 weights by name: matrices that keep the size of what they multiply, norms around 1, the tables of angles."""
    random = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    model = Llama(config, context)
    for name, parameter in model.named_parameters():
        values = random.standard_normal(parameter.shape, np.float32)
        if len(parameter.shape) == 1:
            weights[name] = 1 + np.float32(0.1) * values
        else:
            weights[name] = values * np.float32(parameter.shape[1] ** -0.5)
    exponents = -np.arange(0, config.head_size, 2) / config.head_size
    angles = np.outer(np.arange(context), config.rope_theta**exponents)
    tables = {"rope.cosines": np.cos(angles), "rope.sines": np.sin(angles)}
    return weights | {name: table.astype(np.float32) for name, table in tables.items()}


def random_tokens(config: LlamaConfig, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(count).integers(0, config.vocabulary, count)]


def dispatches(executable: Executable, name: str, tokens: int, past: int) -> int:
    """Dispatches of one call of a function with so many new tokens after `past` others."""
    step = Machine(executable.bytecode).call(executable.functions[name].index, [tokens, tokens, tokens, past])
    assert not isinstance(step, Suspended), f"{name} reads values back"
    return sum(command[0] == Command.DISPATCH for command in step.commands)


def storage_bytes(module: Module, steps: Iterable[Pass] = PASSES) -> int:
    """Bytes of the storages that the memory plan of a module needs; results and caches are outside them."""
    for name, planned in lower(module, steps=steps):
        if name == "plan_memory":
            return sum(fixed_size(storage, size) for storage, size in planned.storages.items())
    raise AssertionError("no pass plans memory")


def wgsl_sizes(executable: Executable) -> list[int]:
    """Bytes of WGSL of each kernel."""
    return [len(kernel.source.text.encode()) for kernel in executable.kernels]


@dataclass(frozen=True)
class Session:
    """An executable on the device with its weights and caches."""

    runner: Runner

    def prefill(self, tokens: Sequence[int], chunk: int) -> Array:
        """Logits after the tokens, which are the first of a conversation, `chunk` of them at a time."""
        logits = np.zeros(0, np.float32)
        for start in range(0, len(tokens), chunk):
            logits = self.extend(tokens[start : start + chunk], start)
        return logits

    def extend(self, tokens: Sequence[int], past: int) -> Array:
        """Logits after one chunk of tokens behind `past` others."""
        return self._call("prefill", tokens, past)

    def decode(self, token: int, past: int) -> Array:
        """Logits after one more token."""
        return self._call("decode", [token], past)

    def _call(self, name: str, tokens: Sequence[int], past: int) -> Array:
        count = len(tokens)
        inputs: Mapping[str, Array | Sequence[int]] = {
            "tokens": np.array(tokens, np.int32),
            "positions": np.arange(past, past + count, dtype=np.int32),
            "sequences": np.zeros(count, np.int32),
            "past": [past],
        }
        (logits,) = self.runner.call(name, inputs).values()
        return logits.ravel()

    def warm_up(self) -> None:
        """Compiles all kernels, by reading one token and then another."""
        self.prefill([0], 1)
        self.decode(0, 1)

    def prefill_seconds(self, tokens: Sequence[int], chunk: int) -> float:
        """Seconds to read the tokens."""
        return _seconds(lambda: self.prefill(tokens, chunk))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
