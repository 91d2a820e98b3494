"""Passes over a whole module, each a function from a module to a module."""

from .capture import capture
from .dce import eliminate_dead_code
from .dispatch_library import Entry, LibraryBuilder, Routine, dispatch_library
from .inline_calls import inline_calls
from .legalize import legalize
from .lift_workspace import lift_workspace
from .lower_shapes import lower_shapes
from .plan_memory import peak_bytes, plan_memory, planned_bytes, tensor_bytes, unplanned_bytes

__all__ = [
    "Entry",
    "LibraryBuilder",
    "Routine",
    "capture",
    "dispatch_library",
    "eliminate_dead_code",
    "inline_calls",
    "legalize",
    "lift_workspace",
    "lower_shapes",
    "peak_bytes",
    "plan_memory",
    "planned_bytes",
    "tensor_bytes",
    "unplanned_bytes",
]
