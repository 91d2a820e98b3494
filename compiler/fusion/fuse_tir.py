"""fuse_tir: the loop half of fusion; each fused function becomes one tensor program."""

from __future__ import annotations

from dataclasses import replace

from ..ir import (
    Binding, Block, CallFunction, CallTIR, Function, FunctionRef, If, Module, ModuleBuilder, Name, Shape, Tensor, Value, dimensions,
)  # fmt: skip
from ..symbolic import Expr, Var, substitute
from ..tir import Buffer, Program
from .merge import Part, merge


def fuse_tir(module: Module) -> Module:
    """Replaces calls of fused functions by calls of merged programs. No fused function is left."""
    builder = ModuleBuilder(module)
    merged = {name: merge_function(module, f) for name, f in module.functions.items() if f.fused}
    names = {name: builder.add_program(program) for name, program in merged.items()}

    def change(value: Value) -> Value:
        match value:
            case CallFunction(FunctionRef(name), args) if name in merged:
                function, program = module.functions[name], merged[name]
                mapping = _solve(function, args)
                kept = tuple(a for a in args if isinstance(a.annotation, Tensor))
                outputs = tuple(Tensor([substitute(e, mapping) for e in b.shape], b.dtype) for b in program.outputs)
                return CallTIR(names[name], kept, outputs, tuple(substitute(s, mapping) for s in program.symbols))
            case If(condition, then, orelse):
                return If(condition, change_block(then), change_block(orelse))
        return value

    def change_block(block: Block) -> Block:
        return Block(tuple(Binding(b.name, change(b.value), b.places) for b in block.bindings), block.result)

    functions = {n: replace(f, body=change_block(f.body)) for n, f in module.functions.items() if not f.fused}
    return replace(module, functions=functions, programs=builder.programs)


def merge_function(module: Module, function: Function) -> Program:
    """The program of a fused function; its inputs are the tensor parameters in order."""
    inputs = []
    for param in function.params:
        if isinstance(param.annotation, Tensor):
            assert param.annotation.shape is not None and param.annotation.dtype is not None
            inputs.append(Buffer(param.name, param.annotation.shape, param.annotation.dtype))
    parts = []
    for binding in function.body.bindings:
        call = binding.value
        assert isinstance(call, CallTIR)
        program = module.programs[call.program]
        parts.append(Part(program, tuple(map(str, call.args)), (binding.name.name,), call.sym_args))
    result = function.body.result
    assert isinstance(result, Name) and isinstance(result.annotation, Tensor)
    assert result.annotation.shape is not None and result.annotation.dtype is not None
    out = Buffer(result.name, result.annotation.shape, result.annotation.dtype)
    return merge(function.name, parts, inputs, (out,))


def _solve(function: Function, args: tuple[object, ...]) -> dict[Expr, Expr | int]:
    """What the function's variables are at a call."""
    mapping: dict[Expr, Expr | int] = {}
    for param, arg in zip(function.params, args, strict=True):
        annotation = arg.annotation  # type: ignore[attr-defined]
        if isinstance(param.annotation, Tensor | Shape):
            for own, given in zip(dimensions(param.annotation), dimensions(annotation), strict=True):
                if isinstance(own, Var):
                    mapping.setdefault(own, given)
    return mapping
