"""A model with the library, without it, and in the interpreter: the same logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from webrelax.compiler.executable import Executable
from webrelax.compiler.frontend.export import Exported, export_decoder
from webrelax.compiler.frontend.load import load_gguf
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.wgsl.library import LIBRARY

from ...frontend.small_gguf import LAYERS, small_llama

Array = npt.NDArray[Any]
Step = Callable[[str, dict[str, Any]], Array]
ROUTINES = {routine.name for entry in LIBRARY for routine in entry.routines}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Exported, dict[str, Array]]:
    _, loaded = load_gguf(small_llama(tmp_path_factory.mktemp("model") / "small.gguf"))
    weights = {name: load() for name, load in loaded.weights.items()}
    return export_decoder(loaded.model, loaded.context, prefill_chunk=48), weights


@pytest.fixture(scope="module")
def executables(exported: tuple[Exported, dict[str, Array]]) -> dict[str, Executable]:
    return {"on": compile(exported[0].module), "off": compile(exported[0].module, library=())}


def conversation(step: Step) -> Iterator[Array]:
    """Two chunks of a prompt, then single tokens, over the edge of a tile."""
    ids, past = np.random.default_rng(3).integers(0, 259, 100).astype(np.int32), 0
    for count in (48, 17, *[1] * 6):
        positions = np.arange(past, past + count, dtype=np.int32)
        tokens = ids[past : past + count]
        inputs = {"tokens": tokens, "positions": positions, "sequences": np.zeros(count, np.int32), "past": (past,)}
        yield step("decode" if count == 1 else "prefill", inputs)
        past += count


def on_device(executable: Executable, weights: dict[str, Array]) -> Step:
    runner = Runner.of(executable, weights)
    return lambda name, inputs: next(iter(runner.call(name, inputs).values()))


def in_interpreter(exported: Exported, weights: dict[str, Array]) -> Step:
    """The traced module, before any pass: `attention` is expanded there."""
    interpreter = Interpreter(exported.module, weights)
    state = [np.zeros(shape, np.float32) for shape in exported.state.values()]
    return lambda name, inputs: interpreter.call(name, *inputs.values(), *state)[0]


def test_the_same_logits(exported: tuple[Exported, dict[str, Array]], executables: dict[str, Executable]) -> None:
    module, weights = exported
    ways = [on_device(executable, weights) for executable in executables.values()]
    for expected, *logits in zip(*map(conversation, [in_interpreter(module, weights), *ways]), strict=True):
        for actual in logits:
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)


def test_the_switch(executables: dict[str, Executable]) -> None:
    used = {name: {kernel.source.name for kernel in e.kernels} & ROUTINES for name, e in executables.items()}
    assert used == {"on": ROUTINES, "off": set()}
    # All layers share the kernels: one for prompts, two for single tokens.
    assert sum(kernel.source.name in ROUTINES for kernel in executables["on"].kernels) == 3


def test_dispatches_and_memory(executables: dict[str, Executable]) -> None:
    """A prompt takes one dispatch a layer in place of scores, softmax and their product; a token does not take more."""
    steps = {name: {f: dispatches(e, f) for f in ("prefill", "decode")} for name, e in executables.items()}
    assert steps["off"]["prefill"] - steps["on"]["prefill"] == 2 * LAYERS
    assert steps["on"]["decode"] <= steps["off"]["decode"]
    assert executables["on"].bytes_of("storage") < executables["off"].bytes_of("storage")


def dispatches(executable: Executable, function: str) -> int:
    from webrelax.compiler.vm import Machine, Suspended

    entry = executable.functions[function]
    dims = [d if isinstance(d, int) else 1 for argument in entry.arguments for d in argument.shape]
    step = Machine(executable.bytecode).call(entry.index, dims)
    assert not isinstance(step, Suspended)
    return len(step.commands)
