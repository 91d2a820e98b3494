"""Runs a bundle's model outside the page: on a GPU through wgpu, or on the NumPy interpreter."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..compiler.errors import WebrelaxError
from ..compiler.executable import EntryPoint
from ..compiler.target import WEBGPU
from .reader import Bundle
from .sampling import Sampling, sample

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.native.runner import AnyDevice

    Array = np.ndarray[Any, Any]


class Backend(Protocol):
    """What runs a function: inputs by name in, results by name out; the cache stays inside."""

    @property
    def description(self) -> str: ...

    @property
    def dispatches(self) -> int: ...

    def call(self, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]: ...


def device_of(bundle: Bundle) -> AnyDevice:
    """What runs a bundle's kernels here: the GPU that tools share, or the CPU with the bundle's module.

    Raises WebrelaxError where there is none.
    """
    from ..compiler.native.cpu import CpuDevice
    from ..compiler.native.device import default_device

    if bundle.target == WEBGPU.name:
        return default_device()
    return CpuDevice(bundle.file(bundle.manifest["profiles"][bundle.profile]["kernels"]), bundle.kernels)


class NativeBackend:
    """The model on this machine's GPU or CPU, as the bundle's target is. Raises WebrelaxError where that fails."""

    def __init__(self, bundle: Bundle, device: AnyDevice | None = None) -> None:
        from ..compiler.native.runner import Runner

        with gpu_errors():
            self._runner = Runner(
                bundle.kernels,
                bundle.manifest["binding_sets"],
                bundle.buffers,
                bundle.functions,
                bundle.bytecode,
                bundle.weights(),
                device or device_of(bundle),
            )
        self.description = self._runner.description

    @property
    def dispatches(self) -> int:
        return self._runner.dispatches

    def call(self, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        with gpu_errors():
            return self._runner.call(name, inputs)


@contextlib.contextmanager
def gpu_errors() -> Iterator[None]:
    """Makes WebrelaxErrors of what wgpu raises, such as that there is not enough memory."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, getattr(sys.modules.get("wgpu"), "GPUError", ())):
            raise
        raise WebrelaxError(f"the GPU fails ({' '.join(str(error).split())[:300]})") from error


class InterpreterBackend:
    """The planned program on NumPy, in byte storages whose contents are poisoned when a tensor dies."""

    description = "NumPy interpreter"
    dispatches = 0

    def __init__(self, bundle: Bundle) -> None:
        import numpy as np

        from ..compiler.ir import Constant, Tensor, all_bindings, atoms
        from ..compiler.ir.interpreter import Interpreter
        from ..compiler.symbolic import evaluate

        module, _ = bundle.program
        self._entries: Mapping[str, EntryPoint] = bundle.functions
        words = bundle.weights()
        weights: dict[str, Array] = {}
        for function in module.functions.values():
            for binding in all_bindings(function.body):
                for atom in atoms(binding.value):
                    if isinstance(atom, Constant) and atom.name not in weights:
                        shape = [evaluate(d, {}) for d in atom.annotation.shape or ()]
                        kind = np.float32 if atom.annotation.dtype == "f32" else np.uint32
                        weights[atom.name] = words[atom.name].view(kind).reshape(shape)
        self._interpreter = Interpreter(module, weights, remember_constants=True)
        self._module = module
        self._state: dict[str, Array] = {}
        for function in module.functions.values():
            for at, _ in function.consumed:
                param = function.params[at]
                assert isinstance(param.annotation, Tensor)
                shape = [evaluate(d, {}) for d in param.annotation.shape or ()]
                self._state.setdefault(param.name, np.zeros(shape, np.float32))

    def call(self, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        import numpy as np

        function = self._module.functions[name]
        entry = self._entries[name]
        kinds = {a.name: a.dtype for a in entry.arguments}
        args: list[Any] = []
        for param in function.params:
            if param.name in self._state:
                args.append(self._state[param.name])
            elif kinds[param.name] is None:
                args.append(tuple(inputs[param.name]))
            else:
                args.append(np.asarray(inputs[param.name], np.int32))
        results = self._interpreter.call(name, *args)
        carried = {result for _, result in function.consumed}
        fresh = [r for at, r in enumerate(results) if at not in carried]
        return dict(zip((r.name for r in entry.results), fresh, strict=True))


@dataclass
class Stats:
    """Times in seconds and counts of one generation."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    finish_reason: str = "length"


def check_prompt(prompt: Sequence[int], context: int) -> None:
    """Raises WebrelaxError for an empty prompt and one longer than the context."""
    if not prompt:
        raise WebrelaxError("the prompt is empty: give at least one token of text")
    if len(prompt) > context:
        raise WebrelaxError(f"the prompt has {len(prompt)} tokens, the model's context holds {context}: shorten it")


class Engine:
    """One conversation with a model: the tokens in the cache, and the next ones."""

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        model = bundle.manifest["model"]
        self.backend = backend
        self.context: int = model["context"]
        self._chunk: int = model["prefill_chunk"]
        self.cached: list[int] = []

    def prefill(self, prompt: Sequence[int]) -> Array:
        """Logits after the prompt; the part of it that the cache already holds is not computed again.

        Raises WebrelaxError as `check_prompt` does, and where a logit is not a finite number.
        """
        check_prompt(prompt, self.context)
        kept = 0
        while kept < min(len(self.cached), len(prompt) - 1) and self.cached[kept] == prompt[kept]:
            kept += 1
        logits: Array | None = None
        for start in range(kept, len(prompt), self._chunk):
            logits = self._step("prefill", list(prompt[start : start + self._chunk]), start)
        assert logits is not None
        return logits

    def decode(self, token: int) -> Array:
        """Logits after one more token."""
        return self._step("decode", [token], len(self.cached))

    def _step(self, name: str, tokens: list[int], past: int) -> Array:
        import numpy as np

        # What lies behind `past` is overwritten from here on: forget it before the call may fail.
        del self.cached[past:]
        inputs = {
            "tokens": tokens,
            "positions": range(past, past + len(tokens)),
            "sequences": [0] * len(tokens),
            "past": (past,),
        }
        logits: Array = self.backend.call(name, {k: list(v) for k, v in inputs.items()})["logits"][0]
        if not np.isfinite(logits).all():
            raise WebrelaxError("the model computed numbers that are not finite: its weights may be damaged")
        self.cached += tokens
        return logits

    def generate(
        self, prompt: Sequence[int], max_tokens: int, sampling: Sampling, ends: frozenset[int], stats: Stats
    ) -> Iterator[int]:
        """Yields tokens until one of `ends` (not yielded), `max_tokens`, or the end of the context."""
        began = time.perf_counter()
        logits = self.prefill(prompt)
        stats.prompt_tokens, stats.prefill_s = len(prompt), time.perf_counter() - began
        began = time.perf_counter()
        bound = min(max_tokens, self.context - len(prompt) + 1)
        for made in range(bound):
            token = sample(logits, sampling, len(prompt) + made)
            if token in ends:
                stats.finish_reason = "stop"
                break
            stats.completion_tokens += 1
            yield token
            if made + 1 < bound:
                logits = self.decode(token)
            stats.decode_s = time.perf_counter() - began
