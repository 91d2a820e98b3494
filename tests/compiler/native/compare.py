"""Runs a module's function on the device, with replay and without, and compares with the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from webrelax.compiler.ir import Function, Module, Shape
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile

from ..ops.cases import Array


def check_on_device(
    module: Module, calls: Sequence[Sequence[Any]], weights: Mapping[str, Array] | None = None, name: str = "f"
) -> Runner:
    """Each call gives what the interpreter gives, overwritten arguments included; returns the runner, for more.

    `calls` has the arguments of each. Replayed dispatches give bit-identical values.
    """
    executable = compile(module)
    runners = [Runner.of(executable, weights, replay=replay) for replay in (True, False)]
    function = module.functions[name]
    for arguments in calls:
        expected = interpreted(module, function, arguments, weights)
        results, others = (on_device(runner, function, arguments) for runner in runners)
        for actual, other, value in zip(results, others, expected, strict=True):
            np.testing.assert_array_equal(actual, other)
            assert actual.dtype == value.dtype
            np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-5)
    return runners[0]


def interpreted(
    module: Module, function: Function, arguments: Sequence[Any], weights: Mapping[str, Array] | None
) -> list[Array]:
    """The tensors that are results and no arguments, then the overwritten arguments."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    values = Interpreter(module, weights).call(function.name, *given)
    several = values if isinstance(values, tuple) and len(function.results) > 1 else (values,)
    carried = {result for _, result in function.consumed}
    kept = tensors([value for at, value in enumerate(several) if at not in carried])
    return kept + [given[at] for at, _ in function.consumed]


def on_device(runner: Runner, function: Function, arguments: Sequence[Any]) -> list[Array]:
    """The same of a run on the device."""
    state = [function.params[at].name for at, _ in function.consumed]
    numbers = {spec.name: at for at, spec in enumerate(runner.specs) if spec.kind == "state"}
    given = dict(zip((p.name for p in function.params), arguments, strict=True))
    for each in state:
        runner.device.write(runner.buffers[numbers[each]], np.ascontiguousarray(given[each]))
    results = runner.call(function.name, {n: v for n, v in by_leaf(function, given).items() if n not in state})
    after = [runner.device.read(runner.buffers[numbers[n]], given[n].nbytes) for n in state]
    kept = [np.frombuffer(raw, given[n].dtype).reshape(given[n].shape) for n, raw in zip(state, after, strict=True)]
    return [*results.values(), *kept]


def by_leaf(function: Function, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the host gives them: a tuple's fields have names of their own."""
    found: dict[str, Any] = {}

    def add(name: str, value: Any, is_shape: bool) -> None:
        if isinstance(value, tuple) and not is_shape:
            for at, part in enumerate(value):
                add(f"{name}.{at}", part, False)
        else:
            found[name] = value

    for param in function.params:
        add(param.name, given[param.name], isinstance(param.annotation, Shape))
    return found


def tensors(values: Any) -> list[Array]:
    """The arrays among nested tuples, in order."""
    if isinstance(values, list | tuple):
        return [array for value in values for array in tensors(value)]
    return [values] if isinstance(values, np.ndarray) else []
