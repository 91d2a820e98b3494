"""The size of a program in numbers, for people."""

from __future__ import annotations

from dataclasses import dataclass

from ..symbolic import as_expr, upper_bound
from ..tir import DTYPE_BYTES
from .annotations import Annotation, Tensor, Tuple
from .expr import Call, CallFunction, CallLibrary, CallTIR, Function, FunctionRef, Module, Value, all_bindings


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """Calls of a function by what they call, and the bytes of their results at the bounds, were nothing reused."""

    operators: int
    programs: int
    groups: int
    libraries: int
    bytes: int


def summarize(module: Module) -> dict[str, FunctionSummary]:
    """The numbers of each function that is no fused group."""
    return {name: _summarize(module, f) for name, f in module.functions.items() if not f.fused}


def _summarize(module: Module, function: Function) -> FunctionSummary:
    bindings = list(all_bindings(function.body))
    values = [b.value for b in bindings]
    return FunctionSummary(
        sum(isinstance(v, Call) for v in values),
        sum(isinstance(v, CallTIR) for v in values),
        sum(isinstance(v, CallFunction) for v in values),
        sum(isinstance(v, CallLibrary) for v in values),
        sum(_bytes(b.name.annotation) for b in bindings if _allocates(module, b.value)),
    )


def _allocates(module: Module, value: Value) -> bool:
    """Whether a call's results get memory of their own; one that overwrites an argument does not count."""
    match value:
        case Call(op):
            return not op.overwrites
        case CallTIR(program):
            return not module.programs[program].in_place
        case CallFunction(FunctionRef(name)):
            return not module.functions[name].consumed
    return isinstance(value, CallLibrary | CallFunction)


def _bytes(annotation: Annotation) -> int:
    """At the bounds; what has none counts as nothing."""
    match annotation:
        case Tensor(shape, dtype) if shape is not None and dtype is not None:
            total = as_expr(DTYPE_BYTES.get(dtype, 4))
            for extent in shape:
                total = total * extent
            return upper_bound(total) or 0
        case Tuple(fields):
            return sum(map(_bytes, fields))
    return 0
