"""plan_memory: gives every tensor a place in few storages, for all values of the shape variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from ..errors import WebrelaxError
from ..ir import (
    Block,
    CallFunction,
    Function,
    FunctionRef,
    If,
    Module,
    Name,
    Place,
    all_bindings,
    is_subsumed,
    reference,
)
from ..ir.liveness import TensorKey, tensor_lives
from ..symbolic import Expr
from ..target import Target
from .bounds import bound_within
from .placement import Pool, share_blocks


def plan_memory(module: Module, target: Target) -> Module:
    """Places the outputs of all calls by liveness.

    A tensor whose size has an upper bound gets a fixed place for all values of the shape variables, at an offset that
    is a multiple of the target's alignment; any other one a block whose size is an expression, in `Module.storages` as
    well, which each call of the function allocates. No two live tensors overlap, and no call finds something that it
    reads and something that it writes in the same storage. What a function returns has a storage of its own (`result0`,
    `result1`, ...): the caller keeps it.

    Functions that never run at the same time share the fixed storages. One that may be called while it runs is left
    alone: its tensors get memory of their own.
    """
    pools: dict[int, Pool] = {}
    functions, storages = dict(module.functions), dict[str, int | Expr]()
    for name, height in _heights(module).items():
        pool = pools.setdefault(height, Pool(f"level{height}.s" if height else "s", target))
        functions[name], blocks = _plan(module, module.functions[name], pool)
        storages |= blocks
    fixed = {name: size for pool in pools.values() for name, size in pool.storages.items()}
    return replace(module, functions=functions, storages=fixed | storages)


def tensor_bytes(module: Module, function: Function) -> dict[TensorKey, int]:
    """Bytes that each allocated tensor of a function takes at the bounds. Raises WebrelaxError for an unbounded one."""
    sizes = {}
    for tensor, size in tensor_lives(module, function).sizes.items():
        bound = _bound(size, function)
        if bound is None:
            raise WebrelaxError(
                f"{function.name}: {tensor[0]} takes {size} bytes, which has no upper bound: declare one for its"
                " variables"
            )
        sizes[tensor] = bound
    return sizes


def unplanned_bytes(module: Module) -> dict[str, int]:
    """For each function the bytes of its tensors at the bounds if nothing were reused."""
    return {name: sum(tensor_bytes(module, f).values()) for name, f in module.functions.items()}


def peak_bytes(module: Module, function: Function) -> int:
    """The most bytes that are live at once at the bounds: no plan can use less."""
    lives = tensor_lives(module, function)
    change = [0] * (lives.end + 2)
    for tensor, size in tensor_bytes(module, function).items():
        change[lives.born[tensor]] += size
        change[lives.dies[tensor] + 1] -= size
    return max(accumulate(change))


def planned_bytes(module: Module) -> int:
    """The bytes of a plan, results included. Raises WebrelaxError where a size has no bound."""
    sizes = {name: fixed_size(name, size) for name, size in module.storages.items()}
    for binding in (binding for function in module.functions.values() for binding in all_bindings(function.body)):
        for place in binding.places:
            sizes[place.storage] = max(sizes.get(place.storage, 0), fixed_size(place.storage, place.size))
    return sum(sizes.values())


def fixed_size(name: str, size: int | Expr) -> int:
    """The bytes of a storage of a plan. Raises WebrelaxError where only a call tells them."""
    if isinstance(size, Expr):
        raise WebrelaxError(f"{name} takes {size} bytes, which has no upper bound: declare one for its variables")
    return size


def _bound(size: Expr, function: Function) -> int | None:
    """The size at the bounds, rounded up to vectors of four f32; an empty tensor takes one, too."""
    most = bound_within(size, function.requires)
    return None if most is None else max(16, -(-most // 16) * 16)


def _heights(module: Module) -> Mapping[str, int]:
    """How deep the calls below a function nest, but for functions that may be called while they run, and their callers.

    Two functions of the same height never run at the same time.
    """
    waiting = {name: _callees(module, function) for name, function in module.functions.items()}
    heights: dict[str, int] = {}
    height = 0
    while ready := [name for name, callees in waiting.items() if callees <= heights.keys()]:
        heights.update(dict.fromkeys(ready, height))
        height += 1
        for name in ready:
            del waiting[name]
    return heights


def _callees(module: Module, function: Function) -> set[str]:
    """The functions that may be called; a function value may be any that has its signature."""
    callees: set[str] = set()
    for binding in all_bindings(function.body):
        match binding.value:
            case CallFunction(FunctionRef(name)):
                callees.add(name)
            case CallFunction(Name(annotation=signature)):
                functions = module.functions.items()
                callees |= {name for name, f in functions if is_subsumed(reference(f).annotation, signature)}
    return callees


def _plan(module: Module, function: Function, pool: Pool) -> tuple[Function, Mapping[str, Expr]]:
    """The function with its places, and the blocks of unknown size that it allocates."""
    lives = tensor_lives(module, function)
    bounds = {tensor: _bound(size, function) for tensor, size in lives.sizes.items()}
    for (name, _), bound in bounds.items():
        if bound is not None and bound > pool.target.binding_size:
            raise WebrelaxError(
                f"{function.name}: {name} takes {bound} bytes at the bounds, more than the"
                f" {pool.target.binding_size} of a binding: lower the context or the prefill chunk"
            )
    results = [tensor for tensor in bounds if lives.dies[tensor] == lives.end]
    inner = {tensor: bound for tensor, bound in bounds.items() if lives.dies[tensor] < lives.end}
    places = pool.place(lives, {tensor: bound for tensor, bound in inner.items() if bound is not None})
    unbounded = {tensor: lives.sizes[tensor] for tensor, bound in inner.items() if bound is None}
    shared, blocks = share_blocks(f"{function.name}.block", function.body, lives, unbounded)
    places |= shared
    for number, tensor in enumerate(results):
        places[tensor] = Place(f"result{number}", 0, bounds[tensor] or lives.sizes[tensor])
    by_name: dict[str, list[Place]] = {}
    for tensor in lives.sizes:
        by_name.setdefault(tensor[0], []).append(places[tensor])
    return replace(function, body=_annotate(function.body, by_name)), blocks


def _annotate(block: Block, places: Mapping[str, list[Place]]) -> Block:
    bindings = []
    for binding in block.bindings:
        value = binding.value
        if isinstance(value, If):
            value = If(value.condition, _annotate(value.then, places), _annotate(value.orelse, places))
        bindings.append(replace(binding, value=value, places=tuple(places.get(binding.name.name, ()))))
    return Block(tuple(bindings), block.result)
