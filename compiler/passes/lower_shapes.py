"""lower_shapes: the symbolic values of a function become slots of one integer table."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Function, MatchCast, Module, all_bindings, bound_variables, calls_program, dimensions
from ..symbolic import Expr, Var, as_int


def lower_shapes(module: Module) -> Module:
    """Lists in `Function.slots` every variable that the function binds, then what else programs and results need.

    Variables are sorted by name, so that functions with the same variables share kernels, which read slots by number.
    """
    return module.with_functions({name: replace(f, slots=_slots(f)) for name, f in module.functions.items()})


def _slots(function: Function) -> tuple[Expr, ...]:
    bound = set(bound_variables(function))
    needed: dict[Expr, None] = {}
    for binding in all_bindings(function.body):
        if isinstance(binding.value, MatchCast):
            bound.update(d for d in dimensions(binding.value.annotation) if isinstance(d, Var))
        elif calls_program(binding.value):
            needed.update(dict.fromkeys(binding.value.sym_args))
    needed.update((d, None) for result in function.results for d in dimensions(result) if as_int(d) is None)
    first: list[Expr] = [*sorted(bound, key=lambda v: v.name)]
    return (*first, *(e for e in needed if e not in bound))
