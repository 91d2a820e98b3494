"""Checks a kernel against a target's limits, at the upper bounds of its symbols."""

from __future__ import annotations

from math import prod

from ..errors import WebrelaxError
from ..symbolic import upper_bound
from ..target import Target
from ..tir import DTYPE_BYTES, Program
from .kernel import Kernel, Store
from .lower import product
from .walk import loads_of, statements

INDEX_LIMIT = 1 << 31
STORABLE = ("f32", "i32", "u32")


def check_bindings(kernel: Kernel, target: Target) -> None:
    """Raises WebrelaxError if the kernel has more storage buffers than a stage may have."""
    if len(kernel.bindings) > target.storage_buffers:
        raise WebrelaxError(
            f"kernel {kernel.name} binds {len(kernel.bindings)} storage buffers, {target.name} promises "
            f"{target.storage_buffers}; fuse fewer operators into it"
        )


def check_limits(kernel: Kernel, target: Target) -> None:
    """Raises WebrelaxError where the kernel may not run on every device of the target.

    Bindings are counted by `check_bindings`, once those that are the same memory are merged.
    """
    memory = sum(s.bytes for s in kernel.shared)
    if memory > target.workgroup_memory:
        raise WebrelaxError(
            f"kernel {kernel.name} uses {memory} bytes of workgroup memory, {target.name} promises "
            f"{target.workgroup_memory}; make its tiles smaller"
        )
    sizes = zip(kernel.workgroup, target.workgroup_size, strict=True)
    if prod(kernel.workgroup) > target.workgroup_invocations or any(s > most for s, most in sizes):
        raise WebrelaxError(
            f"kernel {kernel.name} has workgroups of {kernel.workgroup} threads, {target.name} promises "
            f"{target.workgroup_invocations} in {target.workgroup_size}; use fewer"
        )
    for extent in kernel.grid:
        high = upper_bound(extent)
        if high is not None and high > target.grid:
            raise WebrelaxError(
                f"kernel {kernel.name} may need {high} workgroups in a dimension ({extent}), {target.name} promises "
                f"{target.grid}; lower the bound of a symbol"
            )
    for binding in kernel.bindings:
        _check_buffer(
            kernel, binding.buffer.name, binding.buffer.dtype, upper_bound(product(binding.buffer.shape)), target
        )


def _check_buffer(kernel: Kernel, name: str, dtype: str, elements: int | None, target: Target) -> None:
    if dtype not in STORABLE:
        raise WebrelaxError(
            f"kernel {kernel.name}: buffer {name} is {dtype}, profile {target.profile} stores {', '.join(STORABLE)}; "
            "pack it into u32 words"
        )
    if elements is None:
        return
    if elements >= INDEX_LIMIT:
        raise WebrelaxError(
            f"kernel {kernel.name}: {name} may have {elements} elements, an index is below {INDEX_LIMIT}; "
            "lower the bound of a symbol"
        )
    if elements * DTYPE_BYTES[dtype] > target.binding_size:
        raise WebrelaxError(
            f"kernel {kernel.name}: {name} may have {elements * DTYPE_BYTES[dtype]} bytes, a binding of {target.name} "
            f"{target.binding_size}; split it by rows"
        )


def check_own_points(kernel: Kernel, program: Program) -> Kernel:
    """The kernel, if every thread reads from an overwritten input only the elements that it overwrites itself.

    Otherwise another thread may have overwritten them already, and WebrelaxError is raised. A thread's points have
    indices of different names, so that none of them reads what was stored at another.
    """
    for output, source in program.in_place:
        everything = list(statements(kernel.body))
        stored = {s.index for s in everything if isinstance(s, Store) and s.buffer == source}
        for load in (load for s in everything for load in loads_of(s)):
            if load.buffer == source and not set(load.indices) <= stored:
                raise WebrelaxError(
                    f"program {program.name}: {output} overwrites {source}, which is also read at other elements; "
                    "give it a result of its own"
                )
    return kernel
