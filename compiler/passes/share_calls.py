"""share_library_calls: what several routines prepare in the same way is prepared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir import Atom, Block, CallLibrary, GetItem, If, Name, Value
from ..ir.expr import map_atoms


def share_library_calls(block: Block) -> Block:
    """Makes equal calls of routines once, and equal parts of their results; a routine overwrites no argument."""
    return _share(block, {}, {})


def _share(block: Block, made: Mapping[Value, Name], renamed: Mapping[str, Atom]) -> Block:
    """`made` are the calls in scope, by value, and `renamed` the names that they replace."""
    made, renamed = dict(made), dict(renamed)

    def current(atom: Atom) -> Atom:
        return renamed.get(atom.name, atom) if isinstance(atom, Name) else atom

    kept = []
    for binding in block.bindings:
        match binding.value:
            case If(condition, then, orelse):
                value: Value = If(current(condition), _share(then, made, renamed), _share(orelse, made, renamed))
            case other:
                value = map_atoms(other, current)
        if isinstance(value, CallLibrary | GetItem):
            if value in made:
                renamed[binding.name.name] = made[value]
                continue
            made[value] = binding.name
        kept.append(replace(binding, value=value))
    return Block(tuple(kept), current(block.result))
