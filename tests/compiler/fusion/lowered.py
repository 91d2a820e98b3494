"""What the tests of fusion share: taking a module through the passes, and comparing what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from webrelax.compiler.fusion import fuse_ops, fuse_tir
from webrelax.compiler.ir import CallTIR, Module, all_bindings, verify
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes import eliminate_dead_code, legalize
from webrelax.compiler.target import WEBGPU

from ..ops.cases import Array


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def stages(module: Module) -> list[Module]:
    """The module before and after each pass up to fusion; each is well-formed."""
    found = [module]
    for step in (legalize, lambda m: fuse_ops(m, WEBGPU), fuse_tir, eliminate_dead_code):
        found.append(step(found[-1]))
    for each in found:
        verify(each)
    return found


def fused(module: Module) -> Module:
    return stages(module)[-1]


def kernels(module: Module, function: str = "f") -> list[str]:
    """The programs that the function calls, in order."""
    bindings = all_bindings(module.functions[function].body)
    return [b.value.program for b in bindings if isinstance(b.value, CallTIR)]


def copied(args: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, tuple) else [value]


def assert_same(modules: Sequence[Module], args: Sequence[Any], weights: Mapping[str, Array] | None = None) -> None:
    """All modules' `f` gives the same values, and leaves the same in arguments that it overwrites."""
    expected_args = copied(args)
    expected = flat(Interpreter(modules[0], weights).call("f", *expected_args))
    for module in modules[1:]:
        actual_args = copied(args)
        actual = flat(Interpreter(module, weights).call("f", *actual_args))
        for one, other in zip([*actual, *actual_args], [*expected, *expected_args], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
