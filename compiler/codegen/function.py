"""Bytecode of one graph function: check the arguments, fill the symbol table, dispatch, branch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..errors import WebrelaxError
from ..executable import Argument, EntryPoint
from ..ir import (
    Annotation,
    Atom,
    Binding,
    Block,
    CallTIR,
    Constant,
    Function,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Name,
    Place,
    ProgramCall,
    Shape,
    ShapeValue,
    TensorToShape,
    Tuple,
    calls_program,
    dimensions,
    print_value,
)
from ..ir.liveness import allocated_outputs
from ..passes.lower_shapes import unknown_dimensions
from ..passes.plan_memory import fixed_size
from ..symbolic import Expr, Var, as_int, substitute, upper_bound
from ..tir import Buffer
from ..vm import VMFunction
from .checks import Dimension, cast_dimensions, check_dimensions
from .joins import Arm, join
from .numbers import Numbers
from .resources import Region, Resources
from .values import (
    DeviceValue,
    DimensionsValue,
    TensorValue,
    check_rank,
    has_shape,
    known_shape,
    known_tensor,
    leaves,
)


class FunctionCode:
    """`run` gives the bytecode, `entry` afterwards the signature."""

    def __init__(self, resources: Resources, function: Function, index: int) -> None:
        self.resources, self.function, self.index = resources, function, index
        self.coarse = unknown_dimensions(function)
        self.numbers = Numbers(function.name, function.slots)
        self.arguments: list[Argument] = []
        self.values: dict[str, DeviceValue] = {}
        self.labels: dict[str, Atom] = {}
        self.state = {function.params[at].name for at, _ in function.consumed}

    def run(self) -> VMFunction:
        """Compiles the function. Raises WebrelaxError for what the VM cannot do."""
        numbers, function = self.numbers, self.function
        count = self._parameters()
        for left, right in function.requires:
            text = self.resources.string(f"{function.name}: {left} must be at most {right}")
            numbers.emit("check_less_equal", numbers.evaluate(left), numbers.evaluate(right), text)
        for expr in function.slots:
            if numbers.knows(expr):
                numbers.evaluate(expr)
        self._block(function.body)
        for expr in (d for result in function.results for d in dimensions(result)):
            numbers.evaluate(expr)
        tensors = [(v.shape, a) for _, _, v, a in self._leaves() if isinstance(v, TensorValue)]
        found = (dim for shape, annotation in tensors if not has_shape(annotation) for dim in shape)
        for variable, dim in zip(self.coarse, found, strict=True):
            numbers.move(numbers.slot_of[variable], dim)
        numbers.emit("return")
        return VMFunction(function.name, count, numbers.slots, len(function.slots), numbers.finish())

    def entry(self) -> EntryPoint:
        """What the host has to know to call it. Raises WebrelaxError for a result of unknown shape."""
        function = self.function
        variables = {}
        for expr in function.slots:
            if isinstance(expr, Var) and expr not in self.coarse:
                upper = upper_bound(expr)
                variables[expr.name] = (expr.lower or 0, (1 << 31) - 1 if upper is None else upper)
        slots = tuple(map(str, function.slots))
        return EntryPoint(
            function.name, self.index, tuple(self.arguments), self._results(), variables, slots, function.captured
        )

    def _results(self) -> tuple[Argument, ...]:
        carried = {result for _, result in self.function.consumed}
        unknown = iter(self.coarse)
        results = []
        for at, leaf, value, annotation in self._leaves():
            if isinstance(value, TensorValue):
                shape = tuple(dimensions(annotation) if has_shape(annotation) else islice(unknown, len(value.shape)))
                if at not in carried:
                    dims = tuple(map(_dimension, shape))
                    results.append(Argument(leaf, value.dtype, dims, value.region[0], value.region[1]))
        return tuple(results)

    def _leaves(self) -> Iterator[tuple[int, str, TensorValue | DimensionsValue, Annotation]]:
        """(number of the result, name, value, annotation) of all tensors and shapes that the function gives."""
        value = self._value(self.function.body.result)
        values = value if isinstance(self.function.result, Tuple) and isinstance(value, tuple) else (value,)
        for at, (name, part) in enumerate(zip(self._result_names(len(values)), values, strict=True)):
            for leaf, inner, annotation in leaves(name, part, self.function.results[at]):
                if isinstance(inner, TensorValue):
                    check_rank(annotation, f"{self.function.name}: result {leaf}")
                yield at, leaf, inner, annotation

    def _result_names(self, count: int) -> tuple[str, ...]:
        """A result is called as the function calls it."""
        result = self.function.body.result
        made = next((b.value for b in self.function.body.bindings if b.name == result), None)
        if isinstance(made, MakeTuple) and isinstance(self.function.result, Tuple):
            return tuple(map(str, made.fields))
        return (str(result),) if count == 1 else tuple(f"{result}.{at}" for at in range(count))

    def _parameters(self) -> int:
        """Gives the parameters memory, binds and checks their dimensions; returns how many dimensions there are."""
        found: list[Dimension] = []
        for param in self.function.params:
            where = f"{self.function.name}: parameter {param.name}"
            self.values[param.name] = self._parameter(param.name, param.annotation, where, found)
        check_dimensions(found, self.numbers, self.resources)
        return sum(isinstance(d.actual, int) for d in found)

    def _parameter(self, name: str, annotation: Annotation, where: str, found: list[Dimension]) -> DeviceValue:
        if isinstance(annotation, Tuple):
            fields = enumerate(annotation.fields)
            return tuple(self._parameter(f"{name}.{at}", field, where, found) for at, field in fields)
        if isinstance(annotation, Shape):
            dims, dtype, region = known_shape(annotation, where), None, (-1, 0, 0)
            value: DeviceValue = DimensionsValue(dims)
        else:
            dims, dtype = known_tensor(annotation, where)
            size = upper_bound(Buffer(name, dims, dtype).size)
            if size is None:
                raise WebrelaxError(f"{where} has no upper bound: declare one for its variables")
            if name in self.state:
                return TensorValue((self.resources.buffer(name, "state", size), 0, size), dims, dtype)
            region = self.resources.input(name, size)
            value = TensorValue(region, dims, dtype)
        self.arguments.append(Argument(name, dtype, tuple(map(_dimension, dims)), region[0], region[1]))
        first = len(found)
        found += [Dimension(dim, f"dimension {at} of {name}", first + at) for at, dim in enumerate(dims)]
        return value

    def _block(self, block: Block) -> None:
        for binding in block.bindings:
            self.values[binding.name.name] = self._binding(binding)

    def _binding(self, binding: Binding) -> DeviceValue:
        value, name = binding.value, binding.name.name
        match value:
            case Name() | Constant() | ShapeValue():
                return self._value(value)
            case MakeTuple(fields):
                return tuple(map(self._value, fields))
            case GetItem(inner, index):
                whole = self._value(inner)
                assert isinstance(whole, tuple)
                return whole[index]
            case MatchCast(inner, annotation, about):
                return self._cast(self._value(inner), annotation, about or name)
            case TensorToShape(inner):
                return self._read(self._value(inner), name)
            case If(condition, then, orelse):
                return self._choice(name, condition, then, orelse)
            case _ if calls_program(value):
                return self._call(value, binding.places)
        raise WebrelaxError(f"{self.function.name}: the VM cannot run {print_value(value)!r}; only the interpreter can")

    def _value(self, atom: Atom) -> DeviceValue:
        match atom:
            case Name(name):
                return self.values[name]
            case ShapeValue(dims):
                return DimensionsValue(dims)
            case Constant(name, annotation):
                shape, dtype = known_tensor(annotation, f"weight {name}")
                size = as_int(Buffer(name, shape, dtype).size)
                if size is None:
                    raise WebrelaxError(f"weight {name} is {annotation}: a weight has a fixed shape")
                return TensorValue((self.resources.buffer(name, "weight", size), 0, size), shape, dtype)
        raise WebrelaxError(f"{self.function.name}: {atom} is a function, which a compiled program can only call")

    def _region(self, atom: Atom) -> Region:
        value = self._value(atom)
        assert isinstance(value, TensorValue)
        return value.region

    def _cast(self, value: DeviceValue, annotation: Annotation, where: str) -> DeviceValue:
        """The value, its dimensions as the annotation calls them."""
        check_dimensions(cast_dimensions(value, annotation, where, self.function.name), self.numbers, self.resources)
        return _renamed(value, annotation)

    def _read(self, value: DeviceValue, where: str) -> DeviceValue:
        """The integers of a tensor, which the host reads back one by one."""
        assert isinstance(value, TensorValue)
        count = as_int(value.shape[0])
        if count is None:
            raise WebrelaxError(f"{self.function.name}: {where} is a shape whose rank, {value.shape[0]}, is not known")
        buffer, offset, _ = value.region
        dims = []
        for at in range(count):
            variable, slot = self.numbers.unknown()
            self.numbers.emit("read", slot, buffer, offset + 4 * at)
            dims.append(variable)
        return DimensionsValue(tuple(dims))

    def _choice(self, name: str, condition: Atom, then: Block, orelse: Block) -> DeviceValue:
        numbers = self.numbers
        buffer, offset, _ = self._region(condition)
        test = numbers.fresh()
        numbers.emit("read", test, buffer, offset)
        before, ready = numbers.code, set(numbers.ready)
        first, second = self._arm(then, ready), self._arm(orelse, ready)
        result = join(f"{self.function.name}.{name}", first, second, ready, numbers, self.resources)
        numbers.code, numbers.ready = before, ready | result.unknown
        otherwise, end = numbers.label(), numbers.label()
        numbers.emit("jump_if_zero", test, otherwise)
        numbers.code += first.code
        numbers.emit("jump", end)
        numbers.emit("label", otherwise)
        numbers.code += second.code
        numbers.emit("label", end)
        return result.value

    def _arm(self, block: Block, ready: set[Expr]) -> Arm:
        self.numbers.code, self.numbers.ready = [], set(ready)
        self._block(block)
        return Arm(self._value(block.result), self.numbers.code, self.numbers.ready)

    def _call(self, call: ProgramCall, places: tuple[Place, ...]) -> DeviceValue:
        program = self.resources.module.programs[call.program]
        inputs = [self._region(a) for a in call.args]
        by_name = {b.name: r for b, r in zip(program.inputs, inputs, strict=True)}
        fresh = allocated_outputs(call, program)
        placed = dict(zip(fresh, (self._place(p) for p in places), strict=True))
        sources = dict(program.in_place)
        outputs = [placed[at] if at in placed else by_name[sources[b.name]] for at, b in enumerate(program.outputs)]
        regions = [*inputs, *(placed[at] for at in fresh)]
        # A routine declares each of its buffers, and writes none of them under two names.
        merged = _same_memory(regions) if isinstance(call, CallTIR) else ()
        dropped = {at for group in merged for at in group[1:]}
        bindings = tuple(r for at, r in enumerate(regions) if at not in dropped)
        slots = tuple(self.numbers.evaluate(e) for e in call.sym_args)
        if isinstance(call, CallTIR):
            number, kernel = self.resources.kernel(program, slots, merged)
        else:
            number, kernel = self.resources.library_kernel(call, slots)
        symbols: dict[Expr, Expr | int] = dict(zip(program.symbols, call.sym_args, strict=True))
        x, y, z = (self.numbers.evaluate(substitute(g, symbols)) for g in kernel.grid)
        self.numbers.emit("dispatch", number, self.resources.binding_set(bindings), x, y, z)
        shapes = (tuple(substitute(e, symbols) for e in b.shape) for b in program.outputs)
        values = tuple(TensorValue(*v) for v in zip(outputs, shapes, (b.dtype for b in program.outputs), strict=True))
        return values[0] if len(values) == 1 else values

    def _place(self, place: Place) -> Region:
        kind = "storage" if place.storage in self.resources.module.storages else "output"
        size = fixed_size(place.storage, place.size)
        return self.resources.buffer(place.storage, kind, place.offset + size), place.offset, size


def _renamed(value: DeviceValue, annotation: Annotation) -> DeviceValue:
    """The value with the dimensions that an annotation knows."""
    if isinstance(value, tuple) and isinstance(annotation, Tuple):
        return tuple(_renamed(v, a) for v, a in zip(value, annotation.fields, strict=True))
    known = tuple(dimensions(annotation))
    if isinstance(value, TensorValue):
        return TensorValue(value.region, known if len(known) == len(value.shape) else value.shape, value.dtype)
    if isinstance(value, DimensionsValue):
        return DimensionsValue(known if len(known) == len(value.dims) else value.dims)
    return value


def _dimension(dim: Expr) -> int | str:
    size = as_int(dim)
    return str(dim) if size is None else size


def _same_memory(regions: list[Region]) -> tuple[tuple[int, ...], ...]:
    """Groups of positions that are the same memory: a buffer may not be bound twice where one of them is written."""
    where: dict[Region, list[int]] = {}
    for at, region in enumerate(regions):
        where.setdefault(region, []).append(at)
    return tuple(tuple(group) for group in where.values() if len(group) > 1)
