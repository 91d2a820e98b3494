"""For a zoo of modules and after every pass: well-formed, fully annotated, and the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Block,
    Call,
    CallLibrary,
    Constant,
    Function,
    FunctionBuilder,
    If,
    Module,
    ModuleBuilder,
    Name,
    Shape,
    ShapeValue,
    Tensor,
    all_bindings,
    deduce,
    is_subsumed,
    print_module,
    reference,
    verify,
)
from webrelax.compiler.ir import Callable as FunctionValue
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.pipeline import PASSES
from webrelax.compiler.quantize import FORMATS, dequantize, packed_words
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.compiler.target import WEBGPU

from ..ops.cases import CASES, Array, f32, i32, module_of

N, M = Var("n", 1, 8), Var("m", 0, 16)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Animal:
    """A module, and arguments for its function `f`."""

    module: Module
    arguments: Sequence[Sequence[Any]]
    weights: Mapping[str, Array] | None = None
    routines: Mapping[str, Callable[..., Array]] | None = None

    def values(self, module: Module) -> list[Any]:
        """All that a run gives and leaves behind."""
        found: list[Any] = []
        for arguments in self.arguments:
            given = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
            found += [Interpreter(module, self.weights, self.routines).call("f", *given), *given]
        return flat(found)


def flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in flat(v)] if isinstance(values, list | tuple) else [values]


def block() -> Animal:
    """A transformer block with quantized weights and a cache."""
    b = FunctionBuilder("f")
    weights: dict[str, Array] = {}

    def matrix(name: str, rows: int, columns: int) -> Name:
        format = FORMATS["Q4_1"]
        words = packed_words(format, rows, columns)
        rng = np.random.default_rng(len(weights))
        codes = rng.integers(0, 2**32, words, dtype=np.uint32)
        start = words - rows * columns // 32
        pairs = (rng.standard_normal((rows * columns // 32, 2)) * 0.05).astype(np.float16)
        codes[start:] = pairs.view(np.uint32)[:, 0]
        weights[name] = codes
        packed = Constant(name, Tensor((words,), "u32"))
        return b.op(dequantize, packed, format=format, rows=rows, columns=columns)

    x, norm = b.param("x", f32(N, 32)), Constant("norm", f32(32))
    weights["norm"] = normal(32, seed=9)
    positions, sequences = b.param("positions", i32(N)), b.param("sequences", i32(N))
    b.param("past", Shape((M,)))
    keys, values = (b.param(name, f32(1, 24, 1, 16)) for name in ("keys", "values"))
    h = b.op(ops.rms_norm, x, norm, eps=1e-5)

    def heads(name: str, count: int) -> Name:
        y = b.op(ops.linear, h, matrix(name, count * 16, 32))
        return b.op(ops.reshape, y, ShapeValue((N, as_expr(count), as_expr(16))))

    tables = [Constant(name, f32(24, 8)) for name in ("cos", "sin")]
    weights |= {name: normal(24, 8, seed=at) for at, name in enumerate(("cos", "sin"))}
    q, k = (b.op(ops.rope, heads(w, n), positions, *tables, interleaved=True) for w, n in (("q", 2), ("k", 1)))
    after_keys = b.op(ops.kv_append, keys, k, positions, sequences)
    after_values = b.op(ops.kv_append, values, heads("v", 1), positions, sequences)
    length = ShapeValue((M + N,))
    mixed = b.op(ops.attention, q, after_keys, after_values, positions, sequences, length, scale=0.25)
    y = b.op(ops.add, x, b.op(ops.linear, b.op(ops.reshape, mixed, ShapeValue((N, as_expr(32)))), matrix("o", 32, 32)))
    last = b.op(ops.linear, b.op(ops.last_row, b.op(ops.silu, y)), matrix("out", 7, 32))
    function = b.finish(last, after_keys, after_values, consumed=[(4, 1), (5, 2)])
    module = module_of(replace(function, requires=((N + M, as_expr(24)),)))
    arguments = [
        [normal(n, 32, seed=n), np.arange(m, m + n, dtype=np.int32), np.zeros(n, np.int32), (m,), *caches()]
        for n, m in ((1, 0), (1, 16), (8, 3), (5, 0))
    ]  # fmt: skip
    return Animal(module, arguments, weights)


def caches() -> list[Array]:
    return [normal(1, 24, 1, 16, seed=seed) for seed in (20, 21)]


def calls() -> Animal:
    """Functions by name, as values, and one that overwrites its argument."""
    k = Var("k", 1, 32)
    b = FunctionBuilder("double")
    x = b.param("x", f32(k))
    double = b.finish(b.op(ops.concat, x, b.op(ops.negate, x), axis=0))
    b = FunctionBuilder("store")
    cache, new, where = b.param("cache", f32(1, 9, 1, 4)), b.param("new", f32(1, 1, 4)), b.param("where", i32(1))
    after = b.op(ops.kv_append, cache, b.op(ops.tanh, new), where, b.op(ops.negate, b.op(ops.subtract, where, where)))
    store = b.finish(after, consumed=[(0, 0)])
    b = FunctionBuilder("f")
    x, cache, where = b.param("x", f32(N)), b.param("cache", f32(1, 9, 1, 4)), b.param("where", i32(1))
    callee = b.param("callee", FunctionValue((f32(k),), f32(k * 2)))
    once, twice = b.call(reference(double), x), b.call(reference(double), b.op(ops.relu, x))
    again = b.call(callee, b.op(ops.add, once, twice))
    row = b.op(ops.reshape, b.op(ops.concat, x, Constant("three", f32(3)), axis=0), ShapeValue((N + 3,)))
    new = b.match_cast(row, f32(4))
    shaped = b.op(ops.reshape, new, ShapeValue((as_expr(1), as_expr(1), as_expr(4))))
    kept = b.call(reference(store), cache, shaped, where)
    result = b.finish(again, once, kept, consumed=[(1, 2)])
    arguments = [[normal(1), normal(1, 9, 1, 4), np.array([5], np.int32), "double"]]
    return Animal(module_of(double, store, result), arguments, {"three": normal(3, seed=5)})


def choices() -> Animal:
    b = FunctionBuilder("f")
    flag, x, y = b.param("flag", i32(1)), b.param("x", f32(N, 4)), b.param("y", f32(N, 4))
    shared = b.op(ops.exp_of, x)
    then, orelse = b.arm(), b.arm()
    nested, other = then.arm(), then.arm()
    inner = then.if_else(
        flag,
        nested.block(nested.op(ops.softmax, nested.op(ops.add, shared, y))),
        other.block(shared),
    )
    chosen = b.if_else(
        flag,
        then.block(then.op(ops.multiply, inner, y)),
        orelse.block(orelse.op(ops.row_sum, orelse.op(ops.negate, shared))),
    )
    function = b.finish(b.make_tuple(chosen, shared), b.op(ops.tanh, y))
    return Animal(module_of(function), [[np.array([f], np.int32), normal(3, 4), normal(3, 4, seed=1)] for f in (0, 1)])


def data_dependent() -> Animal:
    """Relax, fig. 3: a routine whose result's length only the run tells, cast and used."""
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, 2, 2))
    flat_x = b.op(ops.flatten, b.op(ops.reshape, x, ShapeValue((N, as_expr(4)))))
    found = b.emit(CallLibrary("unique", (flat_x,), (Tensor(dtype="f32", ndim=1),)))
    cast = b.match_cast(found, f32(Var("u", 0, 64)))
    y = b.op(ops.exp_of, b.op(ops.negate, cast))
    values = np.array([1, 2, 1, 3, 3, 2, 1, 1], np.float32).reshape(2, 2, 2)
    return Animal(module_of(b.finish(b.op(ops.add, y, y))), [[values]], routines={"unique": np.unique})


def nothing_known() -> Animal:
    """Values that are only passed on, of any kind."""
    b = FunctionBuilder("f")
    x, s = b.param("x", Tensor()), b.param("s", Shape())
    pair = b.make_tuple(x, s)
    inner = b.emit(b.get_item(pair, 0), "again")
    b.op(ops.relu, b.param("y", f32(2)))
    return Animal(module_of(b.finish(inner, pair)), [[normal(2, 2), (1, 2), normal(2)]])


def long_chain() -> Animal:
    """More than a kernel can bind, with values that die at different times."""
    b = FunctionBuilder("f")
    xs = [b.param(f"x{at}", f32(N, 3)) for at in range(11)]
    kept = []
    total = xs[0]
    for at, x in enumerate(xs[1:]):
        total = b.op(ops.add, b.op(ops.softmax, total), x)
        if at % 3 == 0:
            kept.append(total)
    product = kept[0]
    for each in kept[1:]:
        product = b.op(ops.multiply, product, each)
    return Animal(module_of(b.finish(product, kept[1])), [[normal(4, 3, seed=at) for at in range(11)]])


def operator(name: str) -> Callable[[], Animal]:
    case = CASES[name]
    sizes = [(max(n, case.least), m) for n, m in ((0, 0), (5, 4), (40, 3))]
    return lambda: Animal(case.module, [case.inputs(n, m) for n, m in sizes])


ZOO: Mapping[str, Callable[[], Animal]] = {
    "block": block, "calls": calls, "choices": choices, "data_dependent": data_dependent,
    "nothing_known": nothing_known, "long_chain": long_chain, **{name: operator(name) for name in CASES},
}  # fmt: skip


def assert_annotated(module: Module) -> None:
    """Each binding's annotation follows from its value alone, and is as fine."""
    for function in module.functions.values():
        for binding in all_bindings(function.body):
            exact = deduce(binding.value)
            assert is_subsumed(exact, binding.name.annotation)
            if not isinstance(binding.value, If):
                assert is_subsumed(binding.name.annotation, exact), f"{binding.name} lost what was known"


@pytest.mark.parametrize("name", ZOO)
def test_every_pass(name: str) -> None:
    animal = ZOO[name]()
    module = animal.module
    verify(module)
    expected = animal.values(module)
    for step in PASSES:
        module = step.run(module, WEBGPU)
        verify(module)
        assert_annotated(module)
        for actual, value in zip(animal.values(module), expected, strict=True):
            if isinstance(value, np.ndarray):
                assert actual.dtype == value.dtype, step.name
                np.testing.assert_allclose(actual, value, rtol=1e-4, atol=1e-5, err_msg=step.name)
            else:
                assert actual == value, step.name
        assert step.run(module, WEBGPU) is not None  # a pass may run again on what it gave
    assert not any(isinstance(b.value, Call) for f in module.functions.values() for b in all_bindings(f.body))


@pytest.mark.parametrize("name", ["block", "calls", "choices", "long_chain"])
def test_passes_do_not_depend_on_what_came_before(name: str) -> None:
    """The same module gives the same text, each time."""
    texts = []
    for _ in range(2):
        module = ZOO[name]().module
        for step in PASSES:
            module = step.run(module, WEBGPU)
        texts.append(print_module(module))
    assert texts[0] == texts[1]


def test_passes_leave_an_empty_module_alone() -> None:
    module = ModuleBuilder().finish()
    for step in PASSES:
        module = step.run(module, WEBGPU)
        assert print_module(module) == ""


def test_a_function_without_bindings() -> None:
    x = Name("x", f32(N))
    module = module_of(Function("f", (x,), Block((), x), f32(N)))
    for step in PASSES:
        module = step.run(module, WEBGPU)
        verify(module)
    assert module.functions["f"].body == Block((), x)
