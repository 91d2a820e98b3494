"""eliminate_dead_code: removes what nothing uses."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Block, FunctionRef, If, MatchCast, Module, Name, all_bindings, calls_program
from ..ir.liveness import deep_atoms


def eliminate_dead_code(module: Module, roots: tuple[str, ...] | None = None) -> Module:
    """Drops unused bindings, then functions not reachable from `roots` (default: all unfused ones) and unused programs.

    Graph functions are pure: an in-place call whose result is unused may go too. A match_cast stays: it is a check.
    """
    functions = {name: replace(f, body=sweep(f.body)) for name, f in module.functions.items()}
    wanted = list(roots if roots is not None else (n for n, f in functions.items() if not f.fused))
    reached: set[str] = set()
    programs: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in reached:
            continue
        reached.add(name)
        body = functions[name].body
        used = [body.result, *(atom for binding in body.bindings for atom in deep_atoms(binding))]
        wanted += [atom.name for atom in used if isinstance(atom, FunctionRef)]
        programs |= {b.value.program for b in all_bindings(body) if calls_program(b.value)}
    return replace(
        module,
        functions={n: f for n, f in functions.items() if n in reached},
        programs={n: p for n, p in module.programs.items() if n in programs},
    )


def sweep(block: Block) -> Block:
    """Keeps the bindings that the result needs."""
    needed = {block.result.name} if isinstance(block.result, Name) else set()
    kept = []
    for binding in reversed(block.bindings):
        value = binding.value
        if binding.name.name not in needed and not isinstance(value, MatchCast):
            continue
        if isinstance(value, If):
            binding = replace(binding, value=If(value.condition, sweep(value.then), sweep(value.orelse)))
        needed |= {atom.name for atom in deep_atoms(binding) if isinstance(atom, Name)}
        kept.append(binding)
    return Block(tuple(reversed(kept)), block.result)
