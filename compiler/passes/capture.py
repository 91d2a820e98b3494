"""capture: marks the functions whose dispatches a run time may resolve once and replay."""

from __future__ import annotations

from dataclasses import replace

from ..ir import CallFunction, Function, If, Module, TensorToShape, all_bindings
from ..symbolic import Expr


def capture(module: Module) -> Module:
    """Marks each function that has all its memory at fixed places and that runs without the host looking on.

    Every call of such a function makes the same dispatches with the same buffers; only the symbol table and the grids
    differ (Relax, section 4.5: execution-graph offloading). A value that the host must read in between, a choice that
    the program makes, or memory whose size only a call tells leave a function unmarked.
    """
    return module.with_functions({n: replace(f, captured=_is_static(module, f)) for n, f in module.functions.items()})


def _is_static(module: Module, function: Function) -> bool:
    bindings = tuple(all_bindings(function.body))
    places = [place for binding in bindings for place in binding.places]
    sizes = [*(place.size for place in places), *(module.storages.get(place.storage, 0) for place in places)]
    return not any(isinstance(size, Expr) for size in sizes) and not any(
        isinstance(b.value, If | TensorToShape | CallFunction) for b in bindings
    )
