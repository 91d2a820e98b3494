"""The table of schedules: the first rule that applies makes the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..target import WEBGPU, Target
from ..tir import Program
from .dots import is_dots, schedule_dots
from .gemm import is_gemm, schedule_gemm
from .kernel import Kernel
from .limits import check_limits
from .points import schedule_points
from .rows import is_rows, schedule_rows


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
    Rule("gemm", is_gemm, schedule_gemm),
    Rule("dots", is_dots, schedule_dots),
    Rule("rows", is_rows, schedule_rows),
    Rule("serial", lambda program: True, schedule_points),
)


def rule_for(program: Program) -> Rule:
    """The first rule that applies."""
    return next(rule for rule in RULES if rule.applies(program))


def schedule(program: Program, target: Target = WEBGPU) -> Kernel:
    """The kernel of a program.

    Raises WebrelaxError where the target's limits do not allow it, or where the program cannot be one kernel.
    """
    kernel = rule_for(program).schedule(program, target)
    check_limits(kernel, target)
    return kernel
