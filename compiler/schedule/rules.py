"""The table of schedules: the first rule that applies makes the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..errors import WebrelaxError
from ..target import WEBGPU, Target
from ..tir import Program
from .beside import is_beside, schedule_beside
from .dots import is_dots, schedule_dots
from .gemm import is_gemm, schedule_gemm
from .kernel import Kernel
from .limits import check_limits
from .optimize import optimize
from .points import schedule_points
from .rows import is_rows, schedule_rows

MOST_TEXT = 7 << 10  # characters of a kernel, which is about as long as its WGSL


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern and the schedule for the programs that fit it."""

    name: str
    applies: Callable[[Program], bool]
    schedule: Callable[[Program, Target], Kernel]


def has_no_reduction(program: Program) -> bool:
    """Elementwise, broadcast, injective, scatter."""
    return all(stage.reducer is None for stage in program.stages)


RULES = (
    Rule("points", has_no_reduction, schedule_points),
    Rule("beside", is_beside, lambda program, target: schedule_beside(program, target, _scheduled)),
    Rule("gemm", is_gemm, schedule_gemm),
    Rule("dots", is_dots, schedule_dots),
    Rule("rows", is_rows, schedule_rows),
    Rule("serial", lambda program: True, schedule_points),
)


def rule_for(program: Program) -> Rule:
    """The first rule that applies."""
    return next(rule for rule in RULES if rule.applies(program))


def _scheduled(program: Program, target: Target) -> Kernel:
    return rule_for(program).schedule(program, target)


def schedule(program: Program, target: Target = WEBGPU) -> Kernel:
    """The kernel of a program.

    Raises WebrelaxError where the target's limits do not allow it, or where the program cannot be one kernel.
    """
    kernel = _scheduled(program, target)
    check_limits(kernel, target)
    return kernel


@lru_cache(256)
def can_combine(program: Program, target: Target) -> bool:
    """Whether one kernel can do all of a program that consists of independent parts: see `beside`.

    Buffers are not counted, as some may be the same memory: see `check_bindings`.
    """
    try:
        kernel = schedule(program, target)
    except WebrelaxError:
        return False
    return len(str(optimize(kernel))) <= MOST_TEXT
