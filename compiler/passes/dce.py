"""eliminate_dead_code: removes what nothing uses."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Block, CallFunction, CallTIR, FunctionRef, If, Module, all_bindings, atoms, use_counts


def eliminate_dead_code(module: Module, roots: tuple[str, ...] | None = None) -> Module:
    """Drops unused bindings, then functions not reachable from `roots` (all unfused ones by default), then unused programs.

    Graph functions are pure: an in-place call whose result is unused may go too.
    """
    functions = {name: replace(f, body=_sweep(f.body)) for name, f in module.functions.items()}
    wanted = list(roots if roots is not None else (n for n, f in functions.items() if not f.fused))
    reached: set[str] = set()
    programs: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in reached:
            continue
        reached.add(name)
        for binding in all_bindings(functions[name].body):
            wanted += [a.name for a in atoms(binding.value) if isinstance(a, FunctionRef)]
            if isinstance(binding.value, CallTIR):
                programs.add(binding.value.program)
    return replace(
        module,
        functions={n: f for n, f in functions.items() if n in reached},
        programs={n: p for n, p in module.programs.items() if n in programs},
    )


def _sweep(block: Block) -> Block:
    """Keeps the bindings that the result needs. A match_cast stays: it is a check."""
    from ..ir import MatchCast, Name

    needed = {block.result.name} if isinstance(block.result, Name) else set()
    kept = []
    for binding in reversed(block.bindings):
        value = binding.value
        if binding.name.name not in needed and not isinstance(value, MatchCast):
            continue
        if isinstance(value, If):
            value = If(value.condition, _sweep(value.then), _sweep(value.orelse))
            needed |= set(use_counts(value.then)) | set(use_counts(value.orelse))
        needed |= {a.name for a in atoms(value) if isinstance(a, Name)}
        kept.append(replace(binding, value=value))
    return Block(tuple(reversed(kept)), block.result)


__all__ = ["CallFunction", "eliminate_dead_code"]
