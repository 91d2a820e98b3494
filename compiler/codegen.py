"""codegen: from a planned module with lowered shapes to an Executable: kernels, binding sets and bytecode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .errors import WebrelaxError
from .executable import Argument, BindingSet, CompiledKernel, DeviceBuffer, EntryPoint, Executable
from .ir import (
    CallLibrary,
    CallTIR,
    Constant,
    Function,
    GetItem,
    MakeTuple,
    Module,
    Name,
    Place,
    ProgramCall,
    Shape,
    Tensor,
    calls_program,
    print_value,
)
from .ir.liveness import allocated_outputs
from .passes.dispatch_library import Routine
from .passes.plan_memory import fixed_size
from .schedule import Kernel, check_bindings, merge_bindings, schedule
from .symbolic import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Var, as_expr, as_int, substitute, upper_bound
from .target import Target
from .tir import Buffer, Program
from .vm import Instruction, VMFunction, VMModule
from .wgsl import KernelSource, emit
from .wgsl.template import TemplateRoutine, render

INPUTS = "inputs"


def generate(
    module: Module,
    target: Target,
    routines: Iterable[Routine],
    stages: Mapping[str, Module],
    unplanned: Mapping[str, int],
) -> Executable:
    """The executable of a module that went through all passes. Raises WebrelaxError for what the VM cannot do yet."""
    context = _Context(module, target, {routine.name: routine for routine in routines})
    for name, size in module.storages.items():
        context.buffer(name, "storage", fixed_size(name, size))
    functions = [_FunctionCode(context, f, index) for index, f in enumerate(module.functions.values())]
    bytecode = [f.run() for f in functions]
    context.finish_inputs()
    vm = VMModule(
        tuple(bytecode),
        tuple(context.strings),
        len(context.kernels),
        len(context.sets),
        len(context.buffers),
        context.table_vec4s * 4,
    )
    return Executable(
        module,
        tuple(context.kernels.values()),
        tuple(context.sets),
        tuple(context.buffers.values()),
        {f.function.name: f.entry() for f in functions},
        vm,
        dict(stages),
        dict(unplanned),
    )


@dataclass
class _Context:
    """What the functions of a module share: buffers, kernels and binding sets, each found again by its content."""

    module: Module
    target: Target
    routines: Mapping[str, Routine]
    buffers: dict[str, DeviceBuffer] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    kernels: dict[tuple[str, str], CompiledKernel] = field(default_factory=dict)
    sets: dict[BindingSet, int] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        most = max((len(f.slots) for f in self.module.functions.values()), default=0)
        self.table_vec4s = max(1, -(-most // 4))
        self._scheduled: dict[str, Kernel] = {}
        self._emitted: dict[tuple[object, ...], int] = {}
        self._inputs: dict[str, tuple[int, int]] = {}
        self._input_end = 0
        self.buffer(INPUTS, "input", 4)

    def buffer(self, name: str, kind: str, size: int) -> int:
        """The number of the buffer of this name, which is at least `size` bytes large."""
        if size > self.target.buffer_size:
            raise WebrelaxError(f"buffer {name} takes {size} bytes, a buffer has at most {self.target.buffer_size}")
        known = self.buffers.get(name)
        if known is None:
            self.numbers[name] = len(self.numbers)
        elif known.kind != kind:
            raise WebrelaxError(f"the name {name} stands for a {known.kind} and for a {kind}: rename one")
        self.buffers[name] = DeviceBuffer(name, kind, max(size, known.size if known else 4))
        return self.numbers[name]

    def input(self, name: str, size: int) -> tuple[int, int, int]:
        """The section of the input buffer for a host-written tensor; functions share it by name."""
        align = self.target.offset_alignment
        if name not in self._inputs or self._inputs[name][1] < size:
            self._inputs[name] = (self._input_end, size)
            self._input_end = -(-(self._input_end + size) // align) * align
        offset, _ = self._inputs[name]
        return self.numbers[INPUTS], offset, size

    def finish_inputs(self) -> None:
        self.buffer(INPUTS, "input", max(4, self._input_end))

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def binding_set(self, bindings: BindingSet) -> int:
        return self.sets.setdefault(bindings, len(self.sets))

    def library_kernel(self, call: CallLibrary, slots: tuple[int, ...]) -> int:
        """The number of the kernel of a routine, linked by its name. Raises WebrelaxError if there is none."""
        key = (call.routine, call.program, call.attributes, slots)
        if key not in self._emitted:
            routine, program = self.routines.get(call.routine), self.module.programs[call.program]
            if not isinstance(routine, TemplateRoutine):
                raise WebrelaxError(f"the library has no WGSL routine {call.routine!r}: compile with its table")
            symbols = dict(zip(program.symbols, slots, strict=True))
            source, grid = render(routine, program, dict(call.attributes), symbols, self.table_vec4s, self.target)
            self._emitted[key] = self._add(CompiledKernel(source, call.program, slots, grid, ()))
        return self._emitted[key]

    def _add(self, kernel: CompiledKernel) -> int:
        same = (kernel.source.name, kernel.source.wgsl)
        self.kernels.setdefault(same, kernel)
        return list(self.kernels).index(same)

    def kernel(self, program: Program, slots: tuple[int, ...], merged: tuple[tuple[int, ...], ...]) -> int:
        """The number of the kernel for a program whose symbols stand in these slots of the table."""
        key = (program.name, slots, merged)
        if key not in self._emitted:
            if program.name not in self._scheduled:
                self._scheduled[program.name] = schedule(program, self.target)
            scheduled = self._scheduled[program.name]
            kernel = merge_bindings(scheduled, merged) if merged else scheduled
            check_bindings(kernel, self.target)
            source: KernelSource = emit(kernel, dict(zip(program.symbols, slots, strict=True)), self.table_vec4s)
            self._emitted[key] = self._add(CompiledKernel(source, program.name, slots, kernel.grid, merged))
        return self._emitted[key]


class _FunctionCode:
    """Bytecode of one graph function: fill the table, check the arguments, dispatch."""

    def __init__(self, context: _Context, function: Function, index: int) -> None:
        self.context, self.function, self.index = context, function, index
        self.code: list[Instruction] = []
        self.slot_of: dict[Expr, int] = {expr: at for at, expr in enumerate(function.slots)}
        self.ready: set[Expr] = set()
        self.slots = len(function.slots)
        self.arguments: list[Argument] = []
        self.memory: dict[str, tuple[int, int, int]] = {}
        self.values: dict[str, tuple[tuple[int, int, int], ...]] = {}
        self.tuples: dict[str, tuple[str, ...]] = {}
        self.state = {function.params[at].name for at, _ in function.consumed}

    def run(self) -> VMFunction:
        count = self._arguments()
        for left, right in self.function.requires:
            text = f"{self.function.name}: {left} must be at most {right}"
            self._emit("check_less_equal", self.evaluate(left), self.evaluate(right), self.context.string(text))
        for expr in self.function.slots:
            self.evaluate(expr)
        for binding in self.function.body.bindings:
            if calls_program(binding.value):
                self._call(binding.name.name, binding.value, binding.places)
            elif isinstance(binding.value, GetItem):
                self.values[binding.name.name] = (self._regions(binding.value.tuple_value)[binding.value.index],)
            elif isinstance(binding.value, Name | Constant):
                self.values[binding.name.name] = self._regions(binding.value)
            elif isinstance(binding.value, MakeTuple):
                self.values[binding.name.name] = tuple(self._regions(a)[0] for a in binding.value.fields)
                self.tuples[binding.name.name] = tuple(map(str, binding.value.fields))
            else:
                raise WebrelaxError(
                    f"{self.function.name}: the VM cannot run {print_value(binding.value)!r}; only the interpreter can"
                )
        self._emit("return")
        return VMFunction(self.function.name, count, self.slots, len(self.function.slots), tuple(self.code))

    def entry(self) -> EntryPoint:
        variables = {}
        for expr in self.function.slots:
            if isinstance(expr, Var):
                upper = upper_bound(expr)
                variables[expr.name] = (expr.lower or 0, (1 << 31) - 1 if upper is None else upper)
        carried = {result for _, result in self.function.consumed}
        result = self.function.body.result
        regions, names = self._regions(result), self.tuples.get(str(result), (str(result),))
        results = []
        for at, annotation in enumerate(self.function.results):
            if at not in carried and isinstance(annotation, Tensor):
                buffer, offset, _ = regions[at]
                shape = tuple(_dimension(d) for d in annotation.shape or ())
                results.append(Argument(names[at], annotation.dtype, shape, buffer, offset))
        return EntryPoint(self.function.name, self.index, tuple(self.arguments), tuple(results), variables)

    def _emit(self, op: str, *args: int) -> None:
        self.code.append(Instruction(op, args))

    def _arguments(self) -> int:
        """Reads, binds and checks the dimensions of all parameters; returns their number."""
        count = 0
        checks: list[tuple[Expr, int, str]] = []
        for param in self.function.params:
            annotation = param.annotation
            if isinstance(annotation, Tensor) and annotation.shape is not None and annotation.dtype is not None:
                dims = annotation.shape
            elif isinstance(annotation, Shape) and annotation.dims is not None:
                dims = annotation.dims
            else:
                raise WebrelaxError(
                    f"{self.function.name}: parameter {param.name}: the VM needs a known shape, not {annotation}"
                )
            dtype = annotation.dtype if isinstance(annotation, Tensor) else None
            size = upper_bound(Buffer(param.name, dims, dtype or "i32").size)
            if size is None:
                raise WebrelaxError(f"{self.function.name}: parameter {param.name} has no upper bound")
            if param.name in self.state:
                self.memory[param.name] = (self.context.buffer(param.name, "state", size), 0, size)
                continue
            region = self.context.input(param.name, size) if dtype else (-1, 0, 0)
            self.memory[param.name] = region
            self.arguments.append(Argument(param.name, dtype, tuple(map(_dimension, dims)), region[0], region[1]))
            for at, dim in enumerate(dims):
                where = f"{self.function.name}: dimension {at} of {param.name} ({dim})"
                if isinstance(dim, Var) and dim not in self.ready:
                    slot = self.slot_of[dim]
                    self._emit("argument", slot, count)
                    self.ready.add(dim)
                    if dim.lower is not None:
                        checks.append((as_expr(dim.lower), slot, where))
                    if dim.upper is not None:
                        checks.append((as_expr(-dim.upper), -slot - 1, where))
                else:
                    slot = self._fresh()
                    self._emit("argument", slot, count)
                    self._check_equal_later(dim, slot, where, checks)
                count += 1
        self._checks(checks)
        return count

    def _check_equal_later(self, dim: Expr, slot: int, where: str, checks: list[tuple[Expr, int, str]]) -> None:
        checks.append((dim, slot, "= " + where))

    def _checks(self, checks: list[tuple[Expr, int, str]]) -> None:
        """Bounds first, then equalities, whose expressions may need any variable."""
        for expr, slot, where in sorted(checks, key=lambda c: c[2].startswith("= ")):
            if where.startswith("= "):
                self._emit("check_equal", slot, self.evaluate(expr), self.context.string(where[2:]))
            elif slot >= 0:
                self._emit("check_less_equal", self.evaluate(expr), slot, self.context.string(f"{where} is too small"))
            else:
                self._emit("check_less_equal", -slot - 1, self.evaluate(-expr), self.context.string(where))

    def _fresh(self) -> int:
        self.slots += 1
        return self.slots - 1

    def evaluate(self, expr: Expr) -> int:
        """Emits what computes an expression, unless it was computed before, and returns its slot."""
        if expr not in self.ready:
            slot = self._compute(expr)
            self.slot_of[expr] = slot
            self.ready.add(expr)
        return self.slot_of[expr]

    def _compute(self, expr: Expr) -> int:
        match expr:
            case Const(value):
                slot = self.slot_of.get(expr)
                slot = self._fresh() if slot is None else slot
                self._emit("const", slot, value)
                return slot
            case Add(terms):
                parts, op = [self.evaluate(t) for t in terms], "add"
            case Mul(coefficient, factors):
                lead = [] if coefficient == 1 else [self.evaluate(as_expr(coefficient))]
                parts, op = [*lead, *(self.evaluate(f) for f in factors)], "mul"
            case FloorDiv(a, b):
                parts, op = [self.evaluate(a), self.evaluate(b)], "floordiv"
            case FloorMod(a, b):
                parts, op = [self.evaluate(a), self.evaluate(b)], "floormod"
            case Min(args):
                parts, op = [self.evaluate(a) for a in args], "min"
            case Max(args):
                parts, op = [self.evaluate(a) for a in args], "max"
            case _:
                raise WebrelaxError(f"{self.function.name}: the VM cannot compute {expr} before the call runs")
        known = self.slot_of.get(expr)
        target = self._fresh() if known is None else known
        first = parts[0]
        for at, part in enumerate(parts[1:], 1):
            into = target if at == len(parts) - 1 else self._fresh()
            self._emit(op, into, first, part)
            first = into
        return target

    def _regions(self, atom: object) -> tuple[tuple[int, int, int], ...]:
        if isinstance(atom, Constant):
            annotation = atom.annotation
            assert annotation.shape is not None
            assert annotation.dtype is not None
            size = as_int(Buffer(atom.name, annotation.shape, annotation.dtype).size)
            assert size is not None
            return ((self.context.buffer(atom.name, "weight", size), 0, size),)
        assert isinstance(atom, Name)
        if atom.name in self.values:
            return self.values[atom.name]
        return (self.memory[atom.name],)

    def _call(self, name: str, call: ProgramCall, places: tuple[Place, ...]) -> None:
        program = self.context.module.programs[call.program]
        inputs = [self._regions(a)[0] for a in call.args]
        by_name = {b.name: r for b, r in zip(program.inputs, inputs, strict=True)}
        fresh = allocated_outputs(call, program)
        placed = dict(zip(fresh, (self._place(p) for p in places), strict=True))
        sources = dict(program.in_place)
        outputs = [placed[at] if at in placed else by_name[sources[b.name]] for at, b in enumerate(program.outputs)]
        self.values[name] = tuple(outputs)
        regions = [*inputs, *(placed[at] for at in fresh)]
        # A routine declares each of its buffers, and writes none of them under two names.
        merged = _same_memory(regions) if isinstance(call, CallTIR) else ()
        dropped = {at for group in merged for at in group[1:]}
        bindings = tuple(r for at, r in enumerate(regions) if at not in dropped)
        slots = tuple(self.slot_of[e] for e in call.sym_args)
        if isinstance(call, CallLibrary):
            kernel = self.context.library_kernel(call, slots)
        else:
            kernel = self.context.kernel(program, slots, merged)
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
        grid = list(self.context.kernels.values())[kernel].grid
        x, y, z = (self.evaluate(substitute(g, symbols)) for g in grid)
        self._emit("dispatch", kernel, self.context.binding_set(bindings), x, y, z)

    def _place(self, place: Place) -> tuple[int, int, int]:
        kind = "storage" if place.storage in self.context.module.storages else "output"
        size = fixed_size(place.storage, place.size)
        return self.context.buffer(place.storage, kind, place.offset + size), place.offset, size


def _dimension(dim: Expr) -> int | str:
    size = as_int(dim)
    return str(dim) if size is None else size


def _same_memory(regions: list[tuple[int, int, int]]) -> tuple[tuple[int, ...], ...]:
    """Groups of positions that are the same memory: a buffer may not be bound twice where one of them is written."""
    where: dict[tuple[int, int, int], list[int]] = {}
    for at, region in enumerate(regions):
        where.setdefault(region, []).append(at)
    return tuple(tuple(group) for group in where.values() if len(group) > 1)
