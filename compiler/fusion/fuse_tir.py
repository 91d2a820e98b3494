"""fuse_tir: the loop half of fusion; each fused function becomes one tensor program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import Atom, Block, CallFunction, CallTIR, Function, FunctionRef, If, Module, ModuleBuilder, Tensor, Value
from ..ir.annotations import solve
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
                return _call(names[name], merged[name], module.functions[name], args)
            case If(condition, then, orelse):
                return If(condition, change_block(then), change_block(orelse))
        return value

    def change_block(block: Block) -> Block:
        return Block(tuple(replace(b, value=change(b.value)) for b in block.bindings), block.result)

    functions = {n: replace(f, body=change_block(f.body)) for n, f in module.functions.items() if not f.fused}
    return replace(module, functions=functions, programs=builder.programs)


def merge_function(module: Module, function: Function) -> Program:
    """The program of a fused function; its inputs are the tensor parameters in order."""
    inputs = [_buffer(p.name, p.annotation) for p in function.params if isinstance(p.annotation, Tensor)]
    parts = []
    for binding in function.body.bindings:
        call, name = binding.value, binding.name.name
        assert isinstance(call, CallTIR)
        outputs = (name,) if len(call.outputs) == 1 else tuple(f"{name}.{at}" for at in range(len(call.outputs)))
        parts.append(Part(module.programs[call.program], tuple(map(str, call.args)), outputs, call.sym_args))
    result = function.body.bindings[-1]
    assert function.body.result == result.name
    results = [_buffer(name, a) for name, a in zip(parts[-1].outputs, function.results, strict=True)]
    return merge(function.name, parts, inputs, results)


def _buffer(name: str, annotation: object) -> Buffer:
    assert isinstance(annotation, Tensor)
    assert annotation.shape is not None
    assert annotation.dtype is not None
    return Buffer(name, annotation.shape, annotation.dtype)


def _call(name: str, program: Program, function: Function, args: Sequence[Atom]) -> CallTIR:
    """The call of a merged program, its variables replaced by what the arguments say."""
    solved: dict[Var, Expr] = {}
    for param, arg in zip(function.params, args, strict=True):
        solve(param.annotation, arg.annotation, solved)
    kept = tuple(arg for arg in args if isinstance(arg.annotation, Tensor))
    outputs = tuple(Tensor([substitute(e, solved) for e in b.shape], b.dtype) for b in program.outputs)
    return CallTIR(name, kept, outputs, tuple(substitute(symbol, solved) for symbol in program.symbols))
