"""Symbolic integers: build, simplify, bound, prove, substitute, evaluate, print."""

# First: the operators of the nodes import the modules below, which import the nodes.
from . import expr as _nodes  # noqa: F401
from .bounds import bounds, lower_bound, upper_bound
from .division import align_up, ceildiv
from .expr import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Opaque,
    Payload,
    Range,
    Var,
    as_expr,
    as_int,
)
from .extrema import maximum, minimum
from .prove import divide_exact, is_multiple_of, prove_equal, prove_less, prove_less_equal
from .rewrite import map_opaque, walk
from .substitute import evaluate, substitute, variables

__all__ = [
    "Add",
    "Const",
    "Expr",
    "FloorDiv",
    "FloorMod",
    "Max",
    "Min",
    "Mul",
    "Opaque",
    "Payload",
    "Range",
    "Var",
    "align_up",
    "as_expr",
    "as_int",
    "bounds",
    "ceildiv",
    "divide_exact",
    "evaluate",
    "is_multiple_of",
    "lower_bound",
    "map_opaque",
    "maximum",
    "minimum",
    "prove_equal",
    "prove_less",
    "prove_less_equal",
    "substitute",
    "upper_bound",
    "variables",
    "walk",
]
