"""`webrelax check`: every kernel of a site on this machine's GPU or CPU against the NumPy interpreter."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..compiler.errors import WebrelaxError
from ..compiler.executable import CompiledKernel
from ..compiler.ir import Atom, Constant, Function, Module, ProgramCall, all_bindings, calls_program
from ..compiler.ir.liveness import allocated_outputs
from ..compiler.symbolic import Opaque, Var, evaluate, walk
from ..compiler.tir import Buffer, Load, Program
from .engine import device_of, gpu_errors
from .reader import Bundle, open_bundle

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.native.runner import AnyDevice

    Array = np.ndarray[Any, Any]

TOLERANCE = 1e-4
EDGES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65)


@dataclass(frozen=True)
class Case:
    """One run: the values of the program's symbols, and the largest difference, relative to the largest result or 1."""

    symbols: Mapping[str, int]
    difference: float

    @property
    def passed(self) -> bool:
        # Not `difference > TOLERANCE`: a NaN must fail.
        return self.difference <= TOLERANCE


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax check --help`. Exit code 1 where a kernel differs."""
    bundle = open_bundle(args.site, args.model, args.target)
    pattern = args.kernel or "*"
    chosen = [k for k in bundle.program[1] if fnmatch.fnmatch(k.source.name, pattern)]
    if not chosen:
        raise WebrelaxError(f"no kernel's name matches {pattern!r}; `webrelax inspect` lists them")
    device = device_of(bundle).description
    if not args.json:
        print(f"{len(chosen)} kernels on {device}, against NumPy; difference relative to the largest result or 1")
    weights = bundle.weights()
    report, failed = [], 0
    for kernel in chosen:
        cases = check_kernel(bundle, kernel, weights)
        bad = [c for c in cases if not c.passed]
        failed += bool(bad)
        worst = max(cases, key=lambda c: (not c.passed, c.difference))
        report.append(
            {
                "kernel": kernel.source.name,
                "cases": len(cases),
                "difference": worst.difference if isfinite(worst.difference) else None,  # JSON has no infinity
                "symbols": dict(worst.symbols),
                "passed": not bad,
            }
        )
        if not args.json:
            at = ", ".join(f"{k}={v}" for k, v in worst.symbols.items()) or "-"
            word = "ok" if not bad else f"DIFFERS in {len(bad)}"
            print(
                f"{kernel.source.name:<48}{len(cases):>4} cases  {worst.difference:9.2e} at {at:<16} {word}", flush=True
            )
    if args.json:
        print(json.dumps({"device": device, "tolerance": TOLERANCE, "kernels": report, "failed": failed}))
    else:
        print(f"{len(chosen) - failed} kernels ok, {failed} differ")
    return 1 if failed else 0


def check_kernel(bundle: Bundle, kernel: CompiledKernel, weights: Mapping[str, Array]) -> list[Case]:
    """Runs a kernel at several values of each symbolic variable of the function that calls it."""
    module, _ = bundle.program
    program = module.programs[kernel.program]
    function, call = _call_site(module, kernel)
    cases = []
    device = device_of(bundle)
    seen: set[tuple[int, ...]] = set()
    for env in assignments(function):
        values = tuple(evaluate(e, env) for e in call.sym_args)
        if values not in seen:
            seen.add(values)
            cases.append(
                _run_case(program, kernel, call, dict(zip(program.symbols, values, strict=True)), weights, device)
            )
    return cases


def _call_site(module: Module, kernel: CompiledKernel) -> tuple[Function, ProgramCall]:
    """A call that uses the kernel: the program with its symbols in the kernel's slots."""
    for function in module.functions.values():
        for binding in all_bindings(function.body):
            call = binding.value
            if not calls_program(call) or call.program != kernel.program:
                continue
            if tuple(function.slots.index(e) for e in call.sym_args) == kernel.slots:
                return function, call
    raise WebrelaxError(f"nothing calls the kernel {kernel.source.name}: build the site again")


def assignments(function: Function) -> Iterator[dict[Var, int]]:
    """Values of a function's variables: each at 1, odd, next to tile edges and at its bound; others small or large."""
    variables = [e for e in function.slots if isinstance(e, Var)]
    options = []
    for v in variables:
        low, high = v.lower, v.upper
        assert low is not None
        assert high is not None
        options.append(sorted({low, high, *(e for e in (*EDGES, high - 1, high // 2 + 1) if low <= e <= high)}))
    for at, _own in enumerate(options or [[0]]):
        others = [o if i == at else [o[0], o[len(o) // 2]] for i, o in enumerate(options)]
        for values in itertools.product(*others) if options else [()]:
            env = dict(zip(variables, values, strict=True))
            if all(evaluate(a, env) <= evaluate(b, env) for a, b in function.requires):
                yield env
    # The largest case that the function allows.
    env = {v: o[-1] for v, o in zip(variables, options, strict=True)}
    for v in variables:
        while any(evaluate(a, env) > evaluate(b, env) for a, b in function.requires) and env[v] > (v.lower or 0):
            env[v] -= 1
    yield env


def _run_case(
    program: Program,
    kernel: CompiledKernel,
    call: ProgramCall,
    symbols: dict[Var, int],
    weights: Mapping[str, Array],
    device: AnyDevice,
) -> Case:
    import numpy as np

    from ..compiler.native.device import run_kernel
    from ..compiler.tir.interpreter import NUMPY_DTYPES, run

    rng = np.random.default_rng(0)
    first = {position: group[0] for group in kernel.merged for position in group}
    inputs: list[Array] = []
    for at, (buffer, atom) in enumerate(zip(program.inputs, call.args, strict=True)):
        same = first.get(at, at)
        inputs.append(inputs[same] if same != at else _input(program, buffer, atom, symbols, weights, rng))
    expected = run(program, inputs, symbols)
    fresh = allocated_outputs(call, program)
    outputs = [
        np.zeros([evaluate(e, symbols) for e in program.outputs[o].shape], NUMPY_DTYPES[program.outputs[o].dtype])
        for o in fresh
    ]
    dropped = {position for group in kernel.merged for position in group[1:]}
    arrays = [a for at, a in enumerate((*inputs, *outputs)) if at not in dropped]
    table = [0] * (max(kernel.slots, default=-1) + 1)
    for slot, symbol in zip(kernel.slots, program.symbols, strict=True):
        table[slot] = symbols[symbol]
    grid = [evaluate(g, symbols) for g in kernel.grid]
    with gpu_errors():
        results = run_kernel(kernel.source, grid, arrays, table, device)
    sources = dict(program.in_place)
    names = [b.name for b in program.inputs]
    kept = [at for at in range(len(inputs) + len(outputs)) if at not in dropped]
    worst = 0.0
    for at, buffer in enumerate(program.outputs):
        position = len(inputs) + fresh.index(at) if at in fresh else names.index(sources[buffer.name])
        actual = results[kept.index(position)]
        worst = max(worst, difference(actual, expected[at]))
    return Case({s.name: v for s, v in symbols.items()}, worst)


def difference(actual: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected magnitude or 1; infinite where a value is not finite."""
    import numpy as np

    if not expected.size:
        return 0.0
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    return float(np.abs(a - b).max() / max(1.0, np.abs(b).max()))


def _input(
    program: Program, buffer: Buffer, atom: Atom, symbols: Mapping[Var, int], weights: Mapping[str, Array], rng: Any
) -> Array:
    """The real weight, or random numbers; indices within what they index, distinct where they say where to store."""
    import numpy as np

    shape = tuple(evaluate(e, symbols) for e in buffer.shape)
    if isinstance(atom, Constant):
        kind = np.float32 if buffer.dtype == "f32" else np.uint32
        return weights[atom.name].view(kind).reshape(shape)
    if buffer.dtype == "f32":
        values: Array = rng.standard_normal(shape).astype(np.float32)
        return values
    if buffer.dtype == "u32":
        words: Array = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
        return words
    bound = _index_bound(program, buffer.name, symbols)
    if any(not stage.is_pointwise for stage in program.stages):
        return (np.arange(int(np.prod(shape)), dtype=np.int32) % bound).reshape(shape)
    drawn: Array = rng.integers(0, bound, shape).astype(np.int32)
    return drawn


def _index_bound(program: Program, name: str, symbols: Mapping[Var, int]) -> int:
    """One more than the largest value that an index loaded from the buffer may have."""
    bounds = [max(2, *symbols.values()) if symbols else 2]
    found: list[int] = []
    for stage in program.stages:
        exprs: Sequence[Any] = [*stage.indices, *(i for load in stage.loads() for i in load.indices)]
        for expr in exprs:
            for part in walk(expr):
                if isinstance(part, Opaque) and isinstance(part.payload, Load) and part.payload.buffer == name:
                    found.append((part.upper if part.upper is not None else bounds[0]) + 1)
    return min(found or bounds)
