"""Forward deduction of annotations: one step a binding, calls from the callee's signature alone."""

from __future__ import annotations

from collections.abc import Mapping

from ..symbolic import Expr, Var, as_int, substitute, variables
from .annotations import (
    Annotation, Callable, Object, Shape, Tensor, Tuple, dimensions, erase_variables, join, map_dimensions,
)  # fmt: skip
from .expr import (
    Call, CallFunction, CallLibrary, CallTIR, Constant, FunctionRef, GetItem, If, MakeTuple, MatchCast, Name, ShapeValue, Value,
)  # fmt: skip


def deduce(value: Value) -> Annotation:
    """The annotation of a value whose atoms are annotated. Raises ValueError, with a sentence, where it is ill-typed."""
    match value:
        case Name() | Constant() | FunctionRef() | ShapeValue():
            return value.annotation
        case Call(op, args, attributes):
            try:
                return op.deduce(tuple(a.annotation for a in args), dict(attributes))
            except ValueError as error:
                raise ValueError(f"{op.name}: {error}") from None
        case CallTIR(outputs=outputs) | CallLibrary(outputs=outputs):
            return outputs[0] if len(outputs) == 1 else Tuple(outputs)
        case CallFunction(callee, args):
            return call_result(callee.annotation, tuple(a.annotation for a in args), str(callee))
        case MakeTuple(fields):
            return Tuple(tuple(f.annotation for f in fields))
        case GetItem(inner, index):
            annotation = inner.annotation
            if isinstance(annotation, Tuple):
                if not 0 <= index < len(annotation.fields):
                    raise ValueError(f"{inner} has {len(annotation.fields)} fields, there is no field {index}")
                return annotation.fields[index]
            return Object()
        case MatchCast(_, annotation):
            return annotation
        case If(_, then, orelse):
            return join(then.result.annotation, orelse.result.annotation)
    raise TypeError(f"not a graph value: {value!r}")


def call_result(callee: Annotation, args: tuple[Annotation, ...], name: str) -> Annotation:
    """The result annotation of a call: the signature's, its variables replaced by what the arguments say.

    Variables that the arguments leave open make the result coarser (Relax, fig. 7).
    """
    if not isinstance(callee, Callable):
        return Object()
    if len(args) != len(callee.params):
        raise ValueError(f"{name} takes {len(callee.params)} arguments, not {len(args)}")
    solved: dict[Var, Expr] = {}
    for param, arg in zip(callee.params, args, strict=True):
        match_annotation(param, arg, solved, name)
    for param, arg in zip(callee.params, args, strict=True):
        _check_known(param, arg, solved, name)
    return instantiate(callee.result, solved)


def instantiate(annotation: Annotation, solved: Mapping[Var, Expr]) -> Annotation:
    """Replaces solved variables; what mentions others is coarsened."""
    coarse = erase_variables(annotation, frozenset(solved))
    return map_dimensions(coarse, dict(solved))


def match_annotation(param: Annotation, arg: Annotation, solved: dict[Var, Expr], name: str) -> None:
    """Binds the variables that stand alone as a dimension of the parameter to the argument's dimensions."""
    match param, arg:
        case Tensor(), Tensor():
            if param.dtype and arg.dtype and param.dtype != arg.dtype:
                raise ValueError(f"{name} expects {param}, not {arg}")
            if param.ndim is not None and arg.ndim is not None and param.ndim != arg.ndim:
                raise ValueError(f"{name} expects {param}, not {arg}")
            if param.shape is not None and arg.shape is not None:
                _bind(param.shape, arg.shape, solved)
        case Shape(), Shape():
            if param.ndim is not None and arg.ndim is not None and param.ndim != arg.ndim:
                raise ValueError(f"{name} expects {param}, not {arg}")
            if param.dims is not None and arg.dims is not None:
                _bind(param.dims, arg.dims, solved)
        case Tuple(a), Tuple(b):
            if len(a) != len(b):
                raise ValueError(f"{name} expects {param}, not {arg}")
            for x, y in zip(a, b, strict=True):
                match_annotation(x, y, solved, name)
        case (Object(), _) | (_, Object()) | (Callable(), Callable()):
            pass
        case _:
            raise ValueError(f"{name} expects {param}, not {arg}")


def _bind(pattern: tuple[Expr, ...], given: tuple[Expr, ...], solved: dict[Var, Expr]) -> None:
    for p, g in zip(pattern, given, strict=True):
        if isinstance(p, Var):
            solved.setdefault(p, g)


def _check_known(param: Annotation, arg: Annotation, solved: Mapping[Var, Expr], name: str) -> None:
    """Refuses an argument whose dimension is a different number for certain. The rest is checked when the program runs."""
    for p, g in zip(dimensions(param), dimensions(arg), strict=False):
        if all(v in solved for v in variables(p)):
            difference = as_int(substitute(p, dict(solved)) - g)
            if difference not in (0, None):
                raise ValueError(f"{name} expects {param}, where {p} is {substitute(p, dict(solved))}, not {arg}")
