"""What a step of each function does on the device, for given values of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...compiler.errors import WebrelaxError
from ...compiler.ir import Binding, CallLibrary, CallTIR, Function, GetItem, all_bindings
from ...compiler.symbolic import Var, variables
from ...compiler.vm import Command, Machine, Suspended
from ..reader import Bundle


@dataclass(frozen=True)
class Dispatch:
    """One start of a kernel: the numbers of the kernel and of its binding set, and the workgroups."""

    kernel: int
    binding_set: int
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Step:
    """One call of a function: the values of its variables, and its dispatches."""

    function: Function
    values: Mapping[str, int]
    dispatches: tuple[Dispatch, ...]

    def environment(self) -> dict[Var, int]:
        """The values by variable."""
        return {v: self.values[v.name] for e in self.function.slots for v in variables(e) if v.name in self.values}

    def calls(self) -> tuple[tuple[Binding, Dispatch], ...]:
        """The calls of tensor programs and routines with their dispatches; nothing where they are not one to one."""
        calls = [b for b in all_bindings(self.function.body) if isinstance(b.value, CallTIR | CallLibrary)]
        return tuple(zip(calls, self.dispatches, strict=True)) if len(calls) == len(self.dispatches) else ()

    def made_by(self) -> dict[str, str]:
        """For each value that is a call's result, or a field of one, the name of the call."""
        made = {b.name.name: b.name.name for b, _ in self.calls()}
        for binding in all_bindings(self.function.body):
            if isinstance(binding.value, GetItem) and str(binding.value.tuple_value) in made:
                made[binding.name.name] = made[str(binding.value.tuple_value)]
        return made


def steps(bundle: Bundle, at: Mapping[str, int] | None = None) -> dict[str, Step]:
    """A step of each function: the largest that its bounds and the context allow, or with the given values.

    Raises WebrelaxError for a name or a value that no function takes.
    """
    chosen = dict(at or {})
    known = {v for entry in bundle.functions.values() for v in entry.variables}
    for name in chosen:
        if name not in known:
            raise WebrelaxError(f"no function has a variable {name!r}; there are: {', '.join(sorted(known))}")
    machine = Machine(bundle.bytecode)
    module, _ = bundle.program
    result = {}
    for name, entry in bundle.functions.items():
        values = _values(bundle, entry.variables, chosen)
        dims = [d if isinstance(d, int) else values[d] for a in entry.arguments for d in a.shape]
        step = machine.call(entry.index, dims)
        if isinstance(step, Suspended):
            raise WebrelaxError(f"{name} reads values back from the device: its dispatches are not known ahead")
        ran = tuple(Dispatch(c[1], c[2], (c[3], c[4], c[5])) for c in step.commands if c[0] == Command.DISPATCH)
        result[name] = Step(module.functions[name], values, ran)
    return result


def _values(bundle: Bundle, variables: Mapping[str, tuple[int, int]], chosen: Mapping[str, int]) -> dict[str, int]:
    for name, (low, high) in variables.items():
        if name in chosen and not low <= chosen[name] <= high:
            raise WebrelaxError(f"{name} = {chosen[name]} is not between {low} and {high}")
    values = {name: chosen.get(name, high) for name, (_, high) in variables.items()}
    # The tokens so far and the new ones share the context.
    context = bundle.manifest["model"]["context"]
    if "m" in values and "n" in values and values["m"] + values["n"] > context:
        given = "n" if "m" in chosen and "n" not in chosen else "m"
        values[given] = max(variables[given][0], context - values["n" if given == "m" else "m"])
    return values
