"""Prints modules as text that reads like typed Python; equal modules print equally."""

from __future__ import annotations

from ..tir import print_program
from .expr import (
    Binding,
    Block,
    Call,
    CallFunction,
    CallLibrary,
    CallTIR,
    Function,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    TensorToShape,
    Value,
)


def print_module(module: Module) -> str:
    """All functions, then all programs, then the storages."""
    parts = [print_function(f) for f in module.functions.values()]
    parts += [print_program(p) for p in module.programs.values()]
    if module.storages:
        parts.append("".join(f"storage {name}: {size} bytes\n" for name, size in module.storages.items()))
    return "\n".join(parts)


def print_function(function: Function) -> str:
    """One graph function."""
    params = ", ".join(f"{p.name}: {p.annotation}" for p in function.params)
    head = "fused def" if function.fused else "captured def" if function.captured else "def"
    lines = [f"{head} {function.name}({params}) -> {function.result}:"]
    lines += [f"    # consumes {function.params[p].name}, result {r} carries it on" for p, r in function.consumed]
    lines += [f"    # requires {a} <= {b}" for a, b in function.requires]
    lines += [f"    # slot {i}: {expr}" for i, expr in enumerate(function.slots)]
    lines += _block(function.body, "    ", "return")
    return "\n".join(lines) + "\n"


def _block(block: Block, indent: str, word: str) -> list[str]:
    lines = []
    for binding in block.bindings:
        lines += _binding(binding, indent)
    return [*lines, f"{indent}{word} {block.result}"]


def _binding(binding: Binding, indent: str) -> list[str]:
    target = f"{indent}{binding.name.name}: {binding.name.annotation}"
    if binding.places:
        target += f" @ {', '.join(map(str, binding.places))}"
    if isinstance(binding.value, If):
        inner = indent + "    "
        return [
            f"{target} = if {binding.value.condition}:",
            *_block(binding.value.then, inner, "yield"),
            f"{indent}else:",
            *_block(binding.value.orelse, inner, "yield"),
        ]
    return [f"{target} = {print_value(binding.value)}"]


def print_value(value: Value) -> str:
    """One right-hand side, on one line."""
    match value:
        case Call(op, args, attributes):
            return f"{op.name}({', '.join([*map(str, args), *(f'{k}={v}' for k, v in attributes)])})"
        case CallTIR(program, args, _, sym_args):
            symbols = f", symbols=({', '.join(map(str, sym_args))})" if sym_args else ""
            return f"call_tir({', '.join([program, *map(str, args)])}{symbols})"
        case CallLibrary(routine, args, _, _, sym_args, attributes):
            symbols = f", symbols=({', '.join(map(str, sym_args))})" if sym_args else ""
            given = [repr(routine), *map(str, args), *(f"{k}={v}" for k, v in attributes)]
            return f"call_dps_library({', '.join(given)}{symbols})"
        case CallFunction(callee, args):
            return f"{callee}({', '.join(map(str, args))})"
        case MakeTuple(fields):
            return f"({', '.join(map(str, fields))}{',' if len(fields) == 1 else ''})"
        case GetItem(inner, index):
            return f"{inner}[{index}]"
        case MatchCast(inner, annotation):
            return f"match_cast({inner}, {annotation})"
        case TensorToShape(inner):
            return f"tensor_to_shape({inner})"
    return str(value)
