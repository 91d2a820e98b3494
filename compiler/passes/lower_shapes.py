"""lower_shapes: the symbolic values of a function become slots of one integer table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir import (
    Annotation,
    Function,
    MatchCast,
    Module,
    Tensor,
    Tuple,
    all_bindings,
    bound_variables,
    calls_program,
    dimensions,
)
from ..symbolic import Expr, Var, as_int


def lower_shapes(module: Module) -> Module:
    """Lists in `Function.slots` every variable that the function binds, then what else programs and results need.

    A dimension of a result that no annotation knows has a slot too: the host has to know how much to read.

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
    return (*first, *(e for e in needed if e not in bound), *unknown_dimensions(function))


def unknown_dimensions(function: Function) -> tuple[Var, ...]:
    """A variable for each dimension of a result that no annotation knows, in the order of the results."""

    def ranks(annotation: Annotation) -> Iterator[int]:
        match annotation:
            case Tuple(fields):
                for field in fields:
                    yield from ranks(field)
            case Tensor(shape=None, ndim=int(rank)):
                yield rank

    return tuple(Var(f"result dimension {at}") for at in range(sum(ranks(function.result))))
