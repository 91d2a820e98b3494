"""Every kernel as the page shows it: what it binds, how large it is started, and what that costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...compiler.executable import CompiledKernel
from ...compiler.ir import CallLibrary, CallTIR
from ...compiler.ir.liveness import allocated_outputs
from ...compiler.symbolic import evaluate
from ...compiler.tir import Program
from ..reader import Bundle
from .costs import Cost, cost
from .facts import Dispatch, Step


@dataclass(frozen=True)
class Binding:
    """A buffer of a kernel: its name in the program, its type, its bytes at most, and which memory it is bound to."""

    name: str
    type: str
    access: str
    size: int
    memory: str


@dataclass(frozen=True)
class Use:
    """What a step of a function does with a kernel: dispatches, and of the first one the workgroups and the cost."""

    dispatches: int
    grid: tuple[int, int, int]
    cost: Cost | None


@dataclass(frozen=True)
class Kernel:
    """A kernel. `grid` is in terms of the program's symbols, `uses` by function."""

    number: int
    name: str
    wgsl: str
    workgroup: tuple[int, ...]
    grid: tuple[str, str, str]
    program: str
    bindings: tuple[Binding, ...]
    uses: Mapping[str, Use]


def kernels(bundle: Bundle, steps: Mapping[str, Step]) -> list[Kernel]:
    """All kernels of a bundle, in its order."""
    return [_kernel(bundle, steps, number) for number in range(len(bundle.kernels))]


def _kernel(bundle: Bundle, steps: Mapping[str, Step], number: int) -> Kernel:
    module, compiled = bundle.program
    own: CompiledKernel = compiled[number]
    program = module.programs[own.program]
    dispatches = [d for step in steps.values() for d in step.dispatches if d.kernel == number]
    uses = {name: use for name, step in steps.items() if (use := _use(step, number, program)) is not None}
    source = bundle.kernels[number]
    grid = (str(own.grid[0]), str(own.grid[1]), str(own.grid[2]))
    bindings = _bindings(bundle, own, program, dispatches)
    return Kernel(number, source.name, source.text, source.workgroup, grid, str(program).rstrip(), bindings, uses)


def _use(step: Step, number: int, program: Program) -> Use | None:
    own = [d for d in step.dispatches if d.kernel == number]
    if not own:
        return None
    found = None
    for binding, dispatch in step.calls():
        call = binding.value
        if dispatch.kernel == number and isinstance(call, CallTIR | CallLibrary):
            symbols = [evaluate(e, step.environment()) for e in call.sym_args]
            found = cost(program, dict(zip(program.symbols, symbols, strict=True)))
            break
    return Use(len(own), own[0].grid, found)


def _bindings(
    bundle: Bundle, kernel: CompiledKernel, program: Program, dispatches: list[Dispatch]
) -> tuple[Binding, ...]:
    call = CallTIR(program.name, (), ())
    buffers = [*program.inputs, *(program.outputs[at] for at in allocated_outputs(call, program))]
    dropped = {at for group in kernel.merged for at in group[1:]}
    kept = [buffer for at, buffer in enumerate(buffers) if at not in dropped]
    sets = [bundle.manifest["binding_sets"][d.binding_set] for d in dispatches]
    result = []
    for at, (buffer, access) in enumerate(zip(kept, kernel.source.access, strict=False)):
        size = max((s[at][2] for s in sets), default=0)
        memory = _memory(bundle, Counter(s[at][0] for s in sets))
        shape = ", ".join(map(str, buffer.shape))
        result.append(Binding(buffer.name, f"{buffer.dtype}[{shape}]", access.replace("_", " and "), size, memory))
    return tuple(result)


def _memory(bundle: Bundle, ids: Counter[int]) -> str:
    """`storage s0, s1` or `30 weights`."""
    kinds: dict[str, list[str]] = {}
    for number in sorted(ids):
        buffer = bundle.buffers[number]
        kinds.setdefault(buffer.kind, []).append(buffer.name)
    words = []
    for kind, names in kinds.items():
        if kind == "storage":
            words.append(f"storage {', '.join(names)}")
        elif kind in ("input", "output"):
            words.append(f"the {kind}")
        else:
            words.append(f"{kind} {names[0]}" if len(names) == 1 else f"{len(names)} {_plural(kind)}")
    return "; ".join(words)


def _plural(kind: str) -> str:
    return {"weight": "weights", "state": "caches"}.get(kind, kind)
