"""The table of schedules: the first rule that applies makes the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from ..errors import WebrelaxError
from ..target import WEBGPU, Target
from ..tir import Literal, Program, Scalar
from .beside import is_beside, schedule_beside
from .dots import is_dots, schedule_dots
from .gemm import is_gemm, schedule_gemm
from .kernel import Kernel
from .limits import check_limits
from .nodes import Local, Vector
from .optimize import optimize
from .points import schedule_points
from .rewrite import deep, map_block
from .rows import is_rows, schedule_rows

MOST_TEXT = 7800  # characters of a kernel, which are about as many as of its WGSL, whose limit is 8 KiB


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
def combining_refusal(program: Program, target: Target) -> str | None:
    """Why one kernel cannot do all of a program that consists of independent parts (see `beside`); None if it can.

    Buffers are not counted, as some may be the same memory: see `check_bindings`.
    """
    try:
        kernel = schedule(program, target)
    except WebrelaxError as error:
        return str(error)
    size = _text_size(kernel)
    return None if size <= MOST_TEXT else f"its text would be about {size} bytes, {MOST_TEXT} are allowed"


def _text_size(kernel: Kernel) -> int:
    """About the characters of a kernel's WGSL, in which constant vectors have short names."""

    def short(node: Scalar) -> Scalar:
        constant = isinstance(node, Vector) and all(isinstance(part, Literal) for part in node.parts)
        return Local("K_0", node.dtype) if constant else node

    optimized = optimize(kernel)
    body = map_block(optimized.body, lambda node: deep(node, short), lambda index: index)
    return len(str(replace(optimized, body=body)))
