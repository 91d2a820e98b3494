"""The pipeline: the passes in their order, and `compile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .codegen import generate
from .executable import Executable
from .fusion.fuse_ops import fuse_ops
from .fusion.fuse_tir import fuse_tir
from .fusion.merge_parallel import merge_parallel
from .ir import Module, verify
from .passes.capture import capture
from .passes.dce import eliminate_dead_code
from .passes.dispatch_library import Entry, dispatch_library
from .passes.inline_calls import inline_calls
from .passes.legalize import legalize
from .passes.lift_workspace import lift_workspace
from .passes.lower_shapes import lower_shapes
from .passes.plan_memory import plan_memory, unplanned_bytes
from .target import WEBGPU, Target
from .wgsl.library import LIBRARY


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the pipeline: a pure function of the module and the target, whose docstring states what it keeps."""

    name: str
    run: Callable[[Module, Target], Module]


def passes(library: Sequence[Entry] = LIBRARY) -> tuple[Pass, ...]:
    """All passes, with the table of routines that dispatch_library looks operators up in."""
    return (
        Pass("inline_calls", lambda module, _: inline_calls(module)),
        Pass("dispatch_library", lambda module, target: dispatch_library(module, target, library)),
        Pass("legalize", lambda module, _: legalize(module)),
        Pass("fuse_ops", fuse_ops),
        Pass("fuse_tir", lambda module, _: fuse_tir(module)),
        Pass("merge_parallel", merge_parallel),
        Pass("lift_workspace", lift_workspace),
        Pass("eliminate_dead_code", lambda module, _: eliminate_dead_code(module)),
        Pass("plan_memory", plan_memory),
        Pass("capture", lambda module, _: capture(module)),
        Pass("lower_shapes", lambda module, _: lower_shapes(module)),
    )


PASSES = passes()


def lower(module: Module, target: Target = WEBGPU, steps: Iterable[Pass] = PASSES) -> Iterable[tuple[str, Module]]:
    """Yields (name, module) for the module as given, under the name "start", and after each pass; each is verified."""
    verify(module)
    yield "start", module
    for step in steps:
        module = step.run(module, target)
        verify(module)
        yield step.name, module


def compile(module: Module, target: Target = WEBGPU, library: Sequence[Entry] = LIBRARY) -> Executable:
    """Compiles a module. Raises WebrelaxError where the target's limits do not allow it.

    `library` is the table of routines, first match first; without any, all kernels are generated.
    """
    stages, unplanned = {}, {}
    for name, module in lower(module, target, passes(library)):  # noqa: B020 - the last module is the result
        stages[name] = module
        if name == "eliminate_dead_code":
            unplanned = unplanned_bytes(module)
    routines = [routine for entry in library for routine in entry.routines]
    return generate(module, target, routines, stages, unplanned)
