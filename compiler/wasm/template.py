"""Library routines as C templates.

A template is Jinja2 text: the body of a KERNEL function (prelude.c), which runs the groups `first` to `last` - 1. In
front of it come the reference program's buffers, as pointers under their own names. A symbolic integer among the
parameters is written as an expression that reads the table, a float as an exact constant, a text as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from ..passes.dispatch_library import Attributes, Routine
from ..source import KernelSource
from ..symbolic import Expr, Var, as_expr
from ..target import Target
from ..tir import Program
from ..wgsl.template import Parameter, SymbolPlaces, bound_buffers, fill
from .expression import TYPES, CExpressions

CParameter = Parameter | str


@dataclass(frozen=True, slots=True)
class CLaunch:
    """The parameters of a template and its number of groups, in terms of the program's symbols."""

    parameters: Mapping[str, CParameter]
    groups: Expr | int


@dataclass(frozen=True, slots=True)
class CRoutine(Routine):
    """A routine whose kernel is a template. `launch(program, attributes)` sees the reference program of the call."""

    template: str
    launch: Callable[[Program, Attributes], CLaunch]


def template(name: str) -> str:
    """The text of a template of the library."""
    return files(__package__).joinpath(f"library/{name}.c.jinja").read_text("utf-8")


def render(
    routine: CRoutine,
    program: Program,
    attributes: Attributes,
    slots: Mapping[Var, int],
    table_vec4s: int,
    target: Target,
) -> tuple[KernelSource, tuple[Expr, Expr, Expr]]:
    """The kernel and its grid, for a program whose symbols stand in these slots of the table."""
    launch = routine.launch(program, attributes)
    expressions = CExpressions(SymbolPlaces({symbol.name: f"table[{at}]" for symbol, at in slots.items()}))
    bindings = bound_buffers(program)
    lines = [f"KERNEL({routine.name}) {{"]
    for at, (buffer, access) in enumerate(bindings):
        mode = "const " if access == "read" else ""
        lines.append(f"  {mode}{TYPES[buffer.dtype]} *restrict {buffer.name} = buffers[{at}];")
    body = fill(routine.template, launch.parameters, expressions).strip()
    lines += [f"  {line}" if line else "" for line in body.splitlines()]
    source = KernelSource(
        routine.name, routine.name, "\n".join([*lines, "}"]) + "\n", (1, 1, 1), tuple(a for _, a in bindings)
    )
    return source, (as_expr(launch.groups), as_expr(1), as_expr(1))
