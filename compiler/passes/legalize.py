"""legalize: operators become calls of tensor programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from ..ir import (
    Annotation,
    Binding,
    Call,
    Function,
    Module,
    ModuleBuilder,
    Names,
    Operator,
    Tensor,
    expand_call,
    rewrite_bindings,
    splice,
    taken_names,
)
from ..tir import Program

Attributes: TypeAlias = tuple[tuple[str, Any], ...]


def legalize(module: Module) -> Module:
    """Lowers every operator call that has a lowering. Equal calls share a program.

    Operators that others make up are expanded first; those without a lowering (data-dependent shapes) stay. Raises
    ValueError where a shape or type that a lowering needs is not known.
    """
    builder = ModuleBuilder(module)
    programs: dict[tuple[Operator, tuple[Annotation, ...], Attributes], Program] = {}

    def lower(binding: Binding, names: Names) -> Iterable[Binding]:
        match binding.value:
            case Call(op, args, attributes) as call if op.expand is not None:
                return [lowered for part in splice(binding, expand_call(call, names)) for lowered in lower(part, names)]
            case Call(op, args, attributes) if op.lower is not None:
                annotations = tuple(a.annotation for a in args)
                key = (op, annotations, attributes)
                if key not in programs:
                    programs[key] = op.lower(annotations, dict(attributes))
                call_tir = builder.call_tir(programs[key], [a for a in args if isinstance(a.annotation, Tensor)])
                return [replace(binding, value=call_tir)]
        return [binding]

    def lower_function(function: Function) -> Function:
        names = taken_names(function)
        return replace(function, body=rewrite_bindings(function.body, lambda binding: lower(binding, names)))

    functions = {name: lower_function(f) for name, f in module.functions.items()}
    return replace(module, functions=functions, programs=builder.programs)
