"""legalize: operators become calls of tensor programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from ..ir import Annotation, Block, Call, Function, If, Module, ModuleBuilder, Operator, Tensor, Value
from ..tir import Program

Attributes: TypeAlias = tuple[tuple[str, Any], ...]


def legalize(module: Module) -> Module:
    """Lowers every operator call that has a lowering. Equal calls share a program.

    Operators without a lowering (data-dependent shapes) stay. Raises ValueError where a shape or type that a lowering
    needs is not known.
    """
    builder = ModuleBuilder(module)
    programs: dict[tuple[Operator, tuple[Annotation, ...], Attributes], Program] = {}

    def lower(value: Value) -> Value:
        match value:
            case Call(op, args, attributes) if op.lower is not None:
                annotations = tuple(a.annotation for a in args)
                key = (op, annotations, attributes)
                if key not in programs:
                    programs[key] = op.lower(annotations, dict(attributes))
                return builder.call_tir(programs[key], [a for a in args if isinstance(a.annotation, Tensor)])
            case If(condition, then, orelse):
                return If(condition, lower_block(then), lower_block(orelse))
        return value

    def lower_block(block: Block) -> Block:
        return Block(tuple(replace(b, value=lower(b.value)) for b in block.bindings), block.result)

    functions: dict[str, Function] = {f.name: replace(f, body=lower_block(f.body)) for f in module.functions.values()}
    return replace(module, functions=functions, programs=builder.programs)
