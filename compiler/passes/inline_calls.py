"""inline_calls: calls of graph functions become the bindings of what they call."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..errors import WebrelaxError
from ..ir import (
    Annotation,
    Atom,
    Binding,
    Block,
    BlockBuilder,
    Callable,
    CallFunction,
    CallLibrary,
    CallTIR,
    Constant,
    Function,
    FunctionRef,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Module,
    Name,
    Shape,
    ShapeValue,
    Tuple,
    Value,
    all_bindings,
    bound_variables,
    deduce,
    dimensions,
    erase_variables,
    is_subsumed,
    map_atoms,
    map_dimensions,
    taken_names,
)
from ..ir.annotations import fits_bounds, map_tensor, solve
from ..ir.liveness import deep_atoms
from ..symbolic import Expr, Var, prove_less_equal, substitute

MOST_BINDINGS = 1 << 17


def inline_calls(module: Module) -> Module:
    """Puts the body of what is called in the place of each call, so that later passes see one dataflow.

    What a function boundary checks when the program runs becomes match_casts, where it is not proved. Function values
    are followed through names, tuples, arguments, results and `if`: a call of a choice becomes a choice of calls. A
    call of a parameter stays; a function that takes or gives functions goes once nothing names it. Raises WebrelaxError
    for a function that calls itself, and for a function value that cannot be followed.
    """
    functions = {name: _inlined(module, function) for name, function in module.functions.items()}
    before, after = (_named(fs) for fs in (module.functions, functions))
    gone = {n for n, f in functions.items() if _passes_functions(f) and n in before - after}
    return module.with_functions({name: f for name, f in functions.items() if name not in gone})


def _named(functions: Mapping[str, Function]) -> set[str]:
    """The functions that others name."""
    blocks = [(b, f.body.result) for f in functions.values() for b in f.body.bindings]
    used = [atom for binding, result in blocks for atom in (*deep_atoms(binding), result)]
    return {atom.name for atom in used if isinstance(atom, FunctionRef)}


def _passes_functions(function: Function) -> bool:
    return any(map(_has_function, (*(p.annotation for p in function.params), function.result)))


def _has_function(annotation: Annotation) -> bool:
    return isinstance(annotation, Callable) or (
        isinstance(annotation, Tuple) and any(map(_has_function, annotation.fields))
    )


def _inlined(module: Module, function: Function) -> Function:
    calls = [b.value for b in all_bindings(function.body) if isinstance(b.value, CallFunction)]
    if all(isinstance(c.callee, FunctionRef) and module.functions[c.callee.name].fused for c in calls):
        return function
    if _has_function(function.result):
        return function
    inliner = _Inliner(module, BlockBuilder(taken_names(function)))
    region = _Region(ChainMap(dict.fromkeys(bound_variables(function))))
    scope = _Scope({p.name: p for p in function.params}, {}, (function.name,))
    result = inliner.value_of(inliner.block(function.body, scope, region), function.name)
    return replace(function, body=Block(tuple(region.bindings), result))


@dataclass(frozen=True)
class _Choice:
    """One of two function values."""

    condition: Atom
    then: _Meaning
    orelse: _Meaning


# What a name of the source stands for: a value of the result, or function values, which the result does not have.
_Meaning: TypeAlias = "Atom | _Choice | tuple[_Meaning, ...]"


@dataclass
class _Region:
    """The block under construction, and the symbolic variables that are bound so far."""

    known: ChainMap[Var, None]
    bindings: list[Binding] = field(default_factory=list)


@dataclass
class _Scope:
    """One activation of a function: what its names and its symbolic variables stand for, and who called whom."""

    values: dict[str, _Meaning]
    symbols: dict[Var, Expr]
    stack: tuple[str, ...]

    @property
    def is_inlined(self) -> bool:
        return len(self.stack) > 1


class _Inliner:
    def __init__(self, module: Module, names: BlockBuilder) -> None:
        self.module, self.names, self.count = module, names, 0

    def block(self, block: Block, scope: _Scope, region: _Region) -> _Meaning:
        """Adds a block's bindings to the region, and gives what its result stands for."""
        for binding in block.bindings:
            scope.values[binding.name.name] = self.binding(binding, scope, region)
        return self.meaning(block.result, scope)

    def binding(self, binding: Binding, scope: _Scope, region: _Region) -> _Meaning:
        value = binding.value
        match value:
            case CallFunction(callee, args):
                meanings = [self.meaning(a, scope) for a in args]
                return self.call(self.meaning(callee, scope), meanings, binding.name, scope, region)
            case Name() | Constant() | ShapeValue() | FunctionRef():
                meaning = self.meaning(value, scope)
                if scope.is_inlined or _is_function(meaning):
                    return meaning
            case MakeTuple(fields):
                meanings = [self.meaning(a, scope) for a in fields]
                if any(map(_is_function, meanings)):
                    return tuple(meanings)
            case GetItem(inner, index):
                meaning = self.meaning(inner, scope)
                if isinstance(meaning, tuple):
                    return meaning[index]
            case MatchCast(inner, annotation):
                meaning = self.meaning(inner, scope)
                if _is_function(meaning):
                    self.check_function(meaning, annotation, binding.name.name, scope)
                    return meaning
                self.rename(annotation, scope)
            case If(condition, then, orelse):
                return self.choice(binding.name, condition, then, orelse, scope, region)
        return self.emit(self.mapped(value, scope), binding.name, scope, region)

    def choice(
        self, name: Name, condition: Atom, then: Block, orelse: Block, scope: _Scope, region: _Region
    ) -> _Meaning:
        test = self.value_of(self.meaning(condition, scope), name.name)
        arms = []
        for arm in (then, orelse):
            inner = _Region(region.known.new_child())
            arms.append((inner, self.block(arm, scope, inner)))
        if not any(_is_function(meaning) for _, meaning in arms):
            blocks = [Block(tuple(inner.bindings), self.value_of(m, name.name)) for inner, m in arms]
            return self.emit(If(test, *blocks), name, scope, region)
        if any(inner.bindings for inner, _ in arms):
            raise WebrelaxError(
                f"{scope.stack[0]}: {name.name} chooses between functions, so its arms must only name them: compute"
                " what they need before it"
            )
        return _Choice(test, arms[0][1], arms[1][1])

    def call(self, callee: _Meaning, args: Sequence[_Meaning], name: Name, scope: _Scope, region: _Region) -> _Meaning:
        match callee:
            case FunctionRef() if not self.module.functions[callee.name].fused:
                return self.inline(self.module.functions[callee.name], args, name, scope, region)
            case _Choice(condition, then, orelse):
                blocks = []
                for chosen in (then, orelse):
                    inner = _Region(region.known.new_child())
                    result = self.call(chosen, args, name, replace(scope, stack=(*scope.stack, "")), inner)
                    blocks.append(Block(tuple(inner.bindings), self.value_of(result, name.name)))
                return self.emit(If(condition, *blocks), name, scope, region)
            case FunctionRef() | Name():
                atoms = tuple(self.value_of(a, name.name) for a in args)
                return self.emit(CallFunction(callee, atoms), name, scope, region)
        raise WebrelaxError(f"{scope.stack[0]}: {name.name} calls something that is no function")

    def inline(
        self, function: Function, args: Sequence[_Meaning], name: Name, scope: _Scope, region: _Region
    ) -> _Meaning:
        if function.name in scope.stack:
            path = " -> ".join([*filter(None, scope.stack), function.name])
            raise WebrelaxError(f"{function.name} calls itself ({path}), which cannot be compiled: unroll it")
        start = len(region.bindings)
        inner = _Scope({}, self.solved(function, args), (*scope.stack, function.name))
        for param, arg in zip(function.params, args, strict=True):
            if _has_function(param.annotation):
                self.check_function(arg, param.annotation, param.name, inner)
                inner.values[param.name] = arg
            else:
                given = self.value_of(arg, name.name)
                inner.values[param.name] = self.argument(function, param, given, inner, region)
        for left, right in function.requires:
            self.require(f"{right - left} of {function.name}", left, right, inner, region)
        result = self.block(function.body, inner, region)
        if scope.is_inlined or _is_function(result):
            return result
        made = region.bindings[start:]
        if made and made[-1].name == result:
            # Nothing knows it yet: it can have the caller's name.
            region.bindings[-1] = replace(made[-1], name=Name(name.name, made[-1].name.annotation))
            return region.bindings[-1].name
        return self.emit(self.value_of(result, name.name), name, scope, region)

    def solved(self, function: Function, args: Sequence[_Meaning]) -> dict[Var, Expr]:
        """The callee's variables in terms of the caller's; a new variable for what the caller does not know."""
        symbols: dict[Var, Expr] = {}
        for param, arg in zip(function.params, args, strict=True):
            if not isinstance(arg, tuple | _Choice):
                solve(param.annotation, arg.annotation, symbols)
        for variable in sorted(bound_variables(function) - symbols.keys(), key=lambda v: v.name):
            symbols[variable] = self.fresh(variable)
        return symbols

    def argument(self, function: Function, param: Name, given: Atom, scope: _Scope, region: _Region) -> Atom:
        """The argument as the callee knows it, with the checks of the boundary that are not proved."""
        about = f"argument {param.name} of {function.name}"
        expected = map_dimensions(param.annotation, scope.symbols)
        if not is_subsumed(given.annotation, expected):
            given = self.emit(MatchCast(given, expected, about), param, scope, region)
        alone = {d for d in dimensions(param.annotation) if isinstance(d, Var)}
        unproved = {v: self.fresh(v) for v in alone if not fits_bounds(v, scope.symbols[v])}
        if unproved:
            bounded = map_dimensions(param.annotation, {**scope.symbols, **unproved})
            self.emit(MatchCast(given, bounded, about), param, scope, region)
        return given

    def require(self, about: str, left: Expr, right: Expr, scope: _Scope, region: _Region) -> None:
        low, high = (substitute(e, scope.symbols) for e in (left, right))
        if not prove_less_equal(low, high):
            rest = self.fresh(Var("rest", 0))
            check = MatchCast(ShapeValue((high - low,)), Shape((rest,)), about)
            self.emit(check, Name("rest", Shape((rest,))), scope, region)

    def rename(self, annotation: Annotation, scope: _Scope) -> None:
        """Gives the variables that a match_cast of an inlined function binds names of their own."""
        if scope.is_inlined:
            for variable in dimensions(annotation):
                if isinstance(variable, Var) and variable not in scope.symbols:
                    scope.symbols[variable] = self.fresh(variable)

    def fresh(self, variable: Var) -> Var:
        return Var(self.names.fresh(variable.name), variable.lower, variable.upper)

    def mapped(self, value: Value, scope: _Scope) -> Value:
        """A value in terms of the caller's names and variables."""
        changed = map_atoms(value, lambda atom: self.value_of(self.meaning(atom, scope), str(atom)))
        match changed:
            case CallTIR() | CallLibrary():
                outputs = tuple(map_tensor(o, scope.symbols) for o in changed.outputs)
                sym_args = tuple(substitute(e, scope.symbols) for e in changed.sym_args)
                return replace(changed, outputs=outputs, sym_args=sym_args)
            case MatchCast(annotation=annotation):
                return replace(changed, annotation=map_dimensions(annotation, scope.symbols))
        return changed

    def meaning(self, atom: Atom, scope: _Scope) -> _Meaning:
        match atom:
            case Name(name):
                return scope.values[name]
            case ShapeValue(dims):
                return ShapeValue(tuple(substitute(d, scope.symbols) for d in dims))
        return atom

    def value_of(self, meaning: _Meaning, where: str) -> Atom:
        """Refuses function values that the compiled program would have to hold. Raises WebrelaxError."""
        if isinstance(meaning, tuple | _Choice):
            raise WebrelaxError(f"{where} holds a function, which a compiled program can only call")
        return meaning

    def check_function(self, meaning: _Meaning, annotation: Annotation, where: str, scope: _Scope) -> None:
        """Raises WebrelaxError where a function value is not what an annotation says."""
        match meaning:
            case _Choice(_, then, orelse):
                self.check_function(then, annotation, where, scope)
                self.check_function(orelse, annotation, where, scope)
            case tuple():
                fields = annotation.fields if isinstance(annotation, Tuple) else ()
                for part, expected in zip(meaning, fields, strict=False):
                    self.check_function(part, expected, where, scope)
            case FunctionRef(name, actual) if not is_subsumed(actual, annotation):
                raise WebrelaxError(f"{scope.stack[0]}: {where} must be {annotation}, but {name} is {actual}")

    def emit(self, value: Value, name: Name, scope: _Scope, region: _Region) -> Name:
        """Binds a value: to the name itself where it is the outer function's."""
        self.count += 1
        if self.count > MOST_BINDINGS:
            raise WebrelaxError(f"{scope.stack[0]} has more than {MOST_BINDINGS} bindings once its calls are inlined")
        if isinstance(value, MatchCast):
            region.known.update({d: None for d in dimensions(value.annotation) if isinstance(d, Var)})
        annotation = deduce(value)
        annotation = erase_variables(annotation, region.known)
        bound = Name(self.names.fresh(name.name) if scope.is_inlined else name.name, annotation)
        region.bindings.append(Binding(bound, value))
        return bound


def _is_function(meaning: _Meaning) -> bool:
    if isinstance(meaning, tuple):
        return any(map(_is_function, meaning))
    return isinstance(meaning, _Choice | FunctionRef) or (
        isinstance(meaning, Name) and _has_function(meaning.annotation)
    )
