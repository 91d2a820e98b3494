"""Forward deduction of annotations: one step a binding, calls from the callee's signature alone."""

from __future__ import annotations

from collections.abc import Mapping

from ..symbolic import Expr, Var, as_int, lower_bound, substitute, upper_bound, variables
from .annotations import (
    Annotation,
    Callable,
    Object,
    Shape,
    Tensor,
    Tuple,
    erase_variables,
    join,
    map_dimensions,
    matched_dimensions,
    solve,
)
from .expr import (
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Constant,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Name,
    ShapeValue,
    TensorToShape,
    Value,
)


def deduce(value: Value) -> Annotation:
    """The annotation of a value whose atoms are annotated. Raises ValueError where it is ill-typed."""
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
            return _field(inner.annotation, index, str(inner))
        case MatchCast(_, annotation):
            return annotation
        case TensorToShape(inner):
            return _as_shape(inner.annotation, str(inner))
        case If(condition, then, orelse):
            _check_condition(condition.annotation, str(condition))
            return join(then.result.annotation, orelse.result.annotation)
    raise TypeError(f"not a graph value: {value!r}")


def _field(annotation: Annotation, index: int, name: str) -> Annotation:
    match annotation:
        case Object():
            return annotation
        case Tuple(fields):
            if not 0 <= index < len(fields):
                raise ValueError(f"{name} has {len(fields)} fields, there is no field {index}")
            return fields[index]
    raise ValueError(f"{name} is no tuple, it is {annotation}")


def _as_shape(annotation: Annotation, name: str) -> Annotation:
    match annotation:
        case Object():
            return Shape()
        case Tensor(dtype=None | "i32", ndim=None | 1):
            return Shape(ndim=None if annotation.shape is None else as_int(annotation.shape[0]))
    raise ValueError(f"{name} must be an i32 tensor of rank 1, not {annotation}")


def _check_condition(annotation: Annotation, name: str) -> None:
    """Refuses what cannot be a tensor of one i32."""
    match annotation:
        case Object():
            return
        case Tensor(dtype=None | "i32"):
            if all(as_int(dim) in (None, 1) for dim in annotation.shape or ()):
                return
    raise ValueError(f"the condition {name} must be one i32, not {annotation}")


def call_result(callee: Annotation, args: tuple[Annotation, ...], name: str) -> Annotation:
    """The result annotation of a call: the signature's, its variables replaced by what the arguments say.

    Variables that the arguments leave open make the result coarser (Relax, fig. 7). Raises ValueError for arguments
    that differ from the parameters for certain; what is unknown is checked when the program runs.
    """
    if isinstance(callee, Object):
        return callee
    if not isinstance(callee, Callable):
        raise ValueError(f"{name} is no function, it is {callee}")
    if len(args) != len(callee.params):
        raise ValueError(f"{name} takes {len(callee.params)} arguments, not {len(args)}")
    solved: dict[Var, Expr] = {}
    for param, arg in zip(callee.params, args, strict=True):
        if not _may_be(arg, param):
            raise ValueError(f"{name} expects {param}, not {arg}")
        solve(param, arg, solved)
    for param, arg in zip(callee.params, args, strict=True):
        _check_dimensions(param, arg, solved, name)
    coarse = erase_variables(callee.result, solved)
    return map_dimensions(coarse, solved)


def _may_be(given: Annotation, expected: Annotation) -> bool:
    """Whether a value of the first annotation can be one of the second, dimensions aside."""
    match given, expected:
        case (Object(), _) | (_, Object()):
            return True
        case Tensor(), Tensor():
            same_type = None in (given.dtype, expected.dtype) or given.dtype == expected.dtype
            return same_type and (None in (given.ndim, expected.ndim) or given.ndim == expected.ndim)
        case Shape(), Shape():
            return None in (given.ndim, expected.ndim) or given.ndim == expected.ndim
        case Tuple(a), Tuple(b):
            return len(a) == len(b) and all(map(_may_be, a, b))
        case Callable(), Callable():
            return len(given.params) == len(expected.params)
    return False


def _check_dimensions(param: Annotation, arg: Annotation, solved: Mapping[Var, Expr], name: str) -> None:
    for own, given in matched_dimensions(param, arg):
        if isinstance(own, Var) and _is_outside(given, own):
            raise ValueError(f"{name} expects {param}, where {own} is {own.lower}..{own.upper}, not {arg}")
        if all(v in solved for v in variables(own)):
            expected = substitute(own, solved)
            if as_int(expected - given) not in (0, None):
                raise ValueError(f"{name} expects {param}, where {own} is {expected}, not {arg}")


def _is_outside(value: Expr, variable: Var) -> bool:
    """Whether a value is certainly not within the variable's bounds."""
    low, high = lower_bound(value), upper_bound(value)
    below = high is not None and variable.lower is not None and high < variable.lower
    return below or (low is not None and variable.upper is not None and low > variable.upper)
