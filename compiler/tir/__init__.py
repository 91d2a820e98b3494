"""Loop-level tensor programs, their interpreter and their analysis."""

from .builder import Handle, ProgramBuilder
from .patterns import Kind, classify, stage_kind
from .program import ARGMAX, MAX, SUM, Axis, Buffer, Program, Reducer, Stage, free_symbols, print_program
from .scalar import (
    DTYPE_BYTES,
    Binary,
    Bitcast,
    Cast,
    Compare,
    Index,
    Literal,
    Load,
    Scalar,
    Select,
    Unary,
    as_scalar,
    children,
    direct_loads,
    exp,
    half,
    index_loads,
    less,
    less_equal,
    loaded_index,
    loads,
    maximum,
    minimum,
    nodes,
    rebuild,
    rsqrt,
    scalar_variables,
    substitute_scalar,
)

__all__ = [
    "ARGMAX", "DTYPE_BYTES", "MAX", "SUM", "Axis", "Binary", "Bitcast", "Buffer", "Cast", "Compare", "Handle", "Index",
    "Kind", "Literal", "Load", "Program", "ProgramBuilder", "Reducer", "Scalar", "Select", "Stage", "Unary",
    "as_scalar", "children", "classify", "direct_loads", "exp", "free_symbols", "half", "index_loads", "less",
    "less_equal", "loaded_index", "loads", "maximum", "minimum", "nodes",
    "print_program", "rebuild", "rsqrt", "scalar_variables",
    "stage_kind", "substitute_scalar",
]  # fmt: skip
