"""Library routines as WGSL templates.

A template is Jinja2 text: constants of the kernel, workgroup variables, and `fn main`. In front of it come the symbol
table at binding 0 and the reference program's buffers, under their own names, from binding 1 on. A symbolic integer
among the parameters is written as an i32 expression that reads the table, a float as an exact f32 constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jinja2 import Environment, StrictUndefined

from ..errors import WebrelaxError
from ..passes.dispatch_library import Attributes, Routine
from ..source import KernelSource
from ..symbolic import Expr, Var, as_expr, as_int
from ..target import Target
from ..tir import Buffer, Program
from .emit import HELPERS
from .expression import TYPES, Expressions, literal
from .names import Names

Parameter = Expr | int | float


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of a template, its threads a workgroup, and its workgroups, in terms of the program's symbols."""

    parameters: Mapping[str, Parameter]
    workgroup: tuple[int, int, int]
    grid: tuple[Expr | int, Expr | int, Expr | int]


@dataclass(frozen=True, slots=True)
class TemplateRoutine(Routine):
    """A routine whose kernel is a template. `launch(program, attributes)` sees the reference program of the call.

    The f32 buffers named in `vectors` are declared as arrays of vec4<f32>: they must hold a multiple of 4 elements.
    """

    template: str
    launch: Callable[[Program, Attributes], Launch]
    vectors: tuple[str, ...] = ()


class SymbolPlaces(Names):
    """Names of symbols are the elements of the table that hold them."""

    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__()
        self._places = places

    def of(self, name: str) -> str:
        return self._places[name]


def fill(template: str, parameters: Mapping[str, object], expressions: Expressions) -> str:
    """The text of a Jinja template; symbolic integers and floats among the parameters become expressions."""

    def finalize(value: object) -> object:
        match value:
            case Expr():
                constant = as_int(value)
                return f"({expressions.index(value)})" if constant is None else constant
            case float():
                return literal(value, "f32")
        return value

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=finalize
    )
    return environment.from_string(template).render(parameters)


def render(
    routine: TemplateRoutine,
    program: Program,
    attributes: Attributes,
    slots: Mapping[Var, int],
    table_vec4s: int,
    target: Target,
) -> tuple[KernelSource, tuple[Expr, Expr, Expr]]:
    """The kernel and its grid, for a program whose symbols stand in these slots of a table of `table_vec4s` vectors.

    Raises WebrelaxError where the target's limits do not allow it.
    """
    launch = routine.launch(program, attributes)
    expressions = Expressions(SymbolPlaces({s.name: f"table[{at // 4}].{'xyzw'[at % 4]}" for s, at in slots.items()}))
    x, y, z = launch.workgroup
    body = fill(routine.template, {**launch.parameters, "workgroup_size": f"{x}, {y}, {z}"}, expressions)
    bindings = bound_buffers(program)
    if len(bindings) > target.storage_buffers or x * y * z > target.workgroup_invocations:
        raise WebrelaxError(
            f"the routine {routine.name} binds {len(bindings)} buffers and has {x * y * z} threads a workgroup;"
            f" {target.name} allows {target.storage_buffers} and {target.workgroup_invocations}"
        )
    head = [f"@group(0) @binding(0) var<uniform> table: array<vec4<i32>, {table_vec4s}>;"]
    for at, (buffer, access) in enumerate(bindings, 1):
        element = TYPES["vec4" if buffer.name in routine.vectors else buffer.dtype]
        head.append(f"@group(0) @binding({at}) var<storage, {access}> {buffer.name}: array<{element}>;")
    helpers = [HELPERS[name] for name in sorted(expressions.helpers)]
    text = "\n".join([*head, "", *helpers, body.strip()]) + "\n"
    source = KernelSource(routine.name, "main", text, launch.workgroup, tuple(access for _, access in bindings))
    gx, gy, gz = map(as_expr, launch.grid)
    return source, (gx, gy, gz)


def bound_buffers(program: Program) -> list[tuple[Buffer, str]]:
    """The buffers that a call binds, with their access: the inputs, then the outputs that are not one of them."""
    overwritten = {source for _, source in program.in_place}
    in_place = {output for output, _ in program.in_place}
    return [
        *((b, "read_write" if b.name in overwritten else "read") for b in program.inputs),
        *((b, "read_write") for b in program.outputs if b.name not in in_place),
    ]
