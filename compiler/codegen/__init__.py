"""codegen: from a planned module with lowered shapes to an Executable: kernels, binding sets and bytecode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..executable import Executable
from ..ir import Module
from ..passes.dispatch_library import Routine
from ..passes.plan_memory import fixed_size
from ..target import Target
from ..vm import VMModule
from .function import FunctionCode
from .resources import Resources

__all__ = ["generate"]


def generate(
    module: Module,
    target: Target,
    routines: Iterable[Routine],
    stages: Mapping[str, Module],
    unplanned: Mapping[str, int],
) -> Executable:
    """The executable of a module that went through all passes. Raises WebrelaxError for what the VM cannot do."""
    resources = Resources(module, target, {routine.name: routine for routine in routines})
    for name, size in module.storages.items():
        resources.buffer(name, "storage", fixed_size(name, size))
    functions = [FunctionCode(resources, f, index) for index, f in enumerate(module.functions.values())]
    bytecode = [f.run() for f in functions]
    resources.finish_inputs()
    vm = VMModule(
        tuple(bytecode),
        tuple(resources.strings),
        len(resources.kernels),
        len(resources.sets),
        len(resources.buffers),
        resources.table_vec4s * 4,
    )
    return Executable(
        module,
        tuple(resources.kernels),
        tuple(resources.sets),
        tuple(resources.buffers.values()),
        {f.function.name: f.entry() for f in functions},
        vm,
        dict(stages),
        dict(unplanned),
        target.language,
    )
