"""What a bundle keeps of its program, for `check` and `inspect`; the page never fetches it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..compiler import fusion, passes
from ..compiler.executable import Executable
from ..compiler.fusion.explain import Explanation, explain
from ..compiler.fusion.merge_parallel import explain_parallel
from ..compiler.ir import Block, Function, GetItem, Module, Name, atoms, print_module
from ..compiler.ir.expr import Call, CallLibrary, CallTIR, Value
from ..compiler.ir.repeats import Repeat, find_repeat
from ..compiler.ir.summary import summarize
from ..compiler.serialize import to_json
from ..compiler.target import Target

START = "The program as the model's Python code was traced: operators on tensors, one after another."
FUSION = "fuse_ops"
MERGING = "merge_parallel"


def program_file(executable: Executable, target: Target) -> dict[str, Any]:
    """The content of program-PROFILE.json.

    `program` has the lowered module and its kernels, `passes` the text after each pass, `unplanned` the bytes of each
    function without reuse, `steps` what each pass did in numbers, and `layers` for each function how one of its
    repeated layers was fused.
    """
    stages = executable.stages
    return {
        "program": to_json((executable.module, executable.kernels)),
        "passes": {name: print_module(module) for name, module in stages.items()},
        "unplanned": dict(executable.unplanned),
        "steps": {name: _step(name, module) for name, module in stages.items()},
        "layers": _layers(stages, target),
    }


def _step(name: str, module: Module) -> dict[str, Any]:
    functions: dict[str, dict[str, Any]] = {}
    for function, numbers in summarize(module).items():
        repeat = find_repeat(module.functions[function].body)
        functions[function] = asdict(numbers)
        if repeat:
            functions[function]["repeat"] = [repeat.start, repeat.period, repeat.count]
    return {
        "about": _about(name),
        "functions": functions,
        "programs": len(module.programs),
        "storage": sum(module.storages.values()),
    }


def _about(name: str) -> str:
    """What a pass does, in a sentence: the first paragraph of its function's docstring."""
    function = getattr(fusion, name, None) or getattr(passes, name, None)
    if inspect.ismodule(function):
        function = getattr(function, name)
    text = inspect.getdoc(function) if function else START
    return " ".join((text or "").partition("\n\n")[0].split())


def _layers(stages: Mapping[str, Module], target: Target) -> dict[str, Any]:
    names = list(stages)
    if FUSION not in names:
        return {}
    before = names[names.index(FUSION) - 1]
    explained = explain(stages[before], target)
    found = {name: _layer(stages[before].functions[name], explanation) for name, explanation in explained.items()}
    for name, layer in found.items():
        layer["beside"] = _beside(stages, target, name, set(layer["reasons"]))
    return found


def _beside(stages: Mapping[str, Module], target: Target, function: str, kernels: set[str]) -> dict[str, str]:
    names = list(stages)
    if MERGING not in names:
        return {}
    module = stages[names[names.index(MERGING) - 1]]
    return explain_parallel(module, target, module.functions[function], kernels)


def _layer(function: Function, explanation: Explanation) -> dict[str, Any]:
    """The middle one of the repeated layers, or the whole function: its calls, and the kernels they are part of."""
    bindings = function.body.bindings
    repeat = find_repeat(function.body) or Repeat(0, len(bindings), 1)
    inside = {bindings[at].name.name for at in repeat.copy((repeat.count - 1) // 2)}
    groups = [group for group in explanation.groups if not inside.isdisjoint(group)]
    shown = inside.union(*groups)
    calls = [
        {
            "name": b.name.name,
            "does": _callee(b.value),
            "kind": explanation.kinds.get(b.name.name, ""),
            "type": str(b.name.annotation),
            "reads": [str(a) for a in atoms(b.value)],
        }
        for b in bindings
        if b.name.name in shown
    ]
    return {
        "count": repeat.count,
        "calls": calls,
        "groups": groups,
        "reasons": {group[-1]: explanation.reasons[group[-1]] for group in groups},
        "leaves": _leaving(function.body, shown),
    }


def _callee(value: Value) -> str:
    match value:
        case CallTIR(program):
            return program
        case CallLibrary(routine):
            return routine
        case Call(op):
            return op.name
    return "" if not isinstance(value, GetItem) else f"result {value.index}"


def _leaving(block: Block, shown: set[str]) -> list[str]:
    """Which of these values are read elsewhere."""
    outside = [a for b in block.bindings if b.name.name not in shown for a in atoms(b.value)]
    read = {a.name for a in (*outside, block.result) if isinstance(a, Name)}
    return [b.name.name for b in block.bindings if b.name.name in shown & read]
