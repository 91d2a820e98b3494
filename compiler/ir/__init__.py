"""The cross-level program: annotations, graph functions, deduction, the printer and the well-formedness check."""

from .annotations import (
    Annotation,
    Callable,
    Object,
    Shape,
    Tensor,
    Tuple,
    annotation_variables,
    dimensions,
    erase_variables,
    is_subsumed,
    join,
    map_dimensions,
)
from .builder import BlockBuilder, FunctionBuilder, ModuleBuilder, reference
from .deduce import call_result, deduce
from .expr import (
    Atom,
    Binding,
    Block,
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Constant,
    Function,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    Operator,
    Place,
    ShapeValue,
    Value,
    all_bindings,
    atoms,
    bound_variables,
    map_atoms,
    use_counts,
)
from .ownership import Ownership, origins
from .printer import print_function, print_module, print_value
from .verify import IllFormed, verify

__all__ = [
    "Annotation", "Atom", "Binding", "Block", "BlockBuilder", "Call", "CallFunction", "CallLibrary", "CallTIR",
    "Callable", "Constant", "Function", "FunctionBuilder", "FunctionRef", "GetItem", "If", "IllFormed", "MakeTuple",
    "MatchCast", "Module", "ModuleBuilder", "Name", "Object", "Operator", "Ownership", "Place", "Shape",
    "ShapeValue", "Tensor", "Tuple", "Value", "all_bindings", "annotation_variables", "atoms", "bound_variables",
    "call_result", "deduce", "dimensions", "erase_variables", "is_subsumed", "join", "map_atoms", "map_dimensions",
    "origins", "print_function", "print_module", "print_value", "reference", "use_counts", "verify",
]  # fmt: skip
