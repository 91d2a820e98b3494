"""Products with packed weights on the CPU: against the programs that they name as reference, and against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.executable import Executable
from webrelax.compiler.ir import Constant, FunctionBuilder, ModuleBuilder, Tensor
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.native.cpu import CpuDevice, compiled_device
from webrelax.compiler.native.runner import Runner
from webrelax.compiler.pipeline import compile
from webrelax.compiler.quantize import FORMATS, BlockFormat, dequantize, packed_words, sections, unpack
from webrelax.compiler.symbolic import Var
from webrelax.compiler.target import WASM
from webrelax.compiler.wasm import build_relaxed_module
from webrelax.compiler.wasm.library import EXACT_LIBRARY, LIBRARY

Array = np.ndarray[Any, Any]
N = Var("n", 1, 130)
# (rows, columns): less than a tile and odd; one group, and numbers of them that are no multiple of four.
SIZES = ((1, 32), (3, 64), (37, 192), (10, 576))
KNOWN = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
GROUPED = [name for name in KNOWN if FORMATS[name].group]
TABLES = {"quantized": LIBRARY, "exact": EXACT_LIBRARY}


def packed(format: BlockFormat, rows: int, columns: int) -> Array:
    """Random codes, and scales and minima of either sign, among them zero and a subnormal one."""
    rng = np.random.default_rng(rows)
    if not format.group:
        values = rng.standard_normal(rows * columns).astype(np.float32)
        halves = {"f16": values.astype(np.float16), "bf16": (values.view(np.uint32) >> 16).astype(np.uint16)}
        return np.ascontiguousarray(halves.get(format.code, values)).view(np.uint32)
    words = rng.integers(0, 1 << 32, packed_words(format, rows, columns), dtype=np.uint32)
    values = words[sections(format, rows, columns)[1] :].view(np.float16)
    values[...] = rng.standard_normal(len(values)) / 16
    values[:2] = (0, 5e-7)
    return words


def name_of(format: str, rows: int, columns: int) -> str:
    return f"{format}_{rows}_{columns}"


CASES = [(format, rows, columns) for format in KNOWN for rows, columns in SIZES]
WEIGHTS = {name_of(*case): packed(FORMATS[case[0]], *case[1:]) for case in CASES}


@cache
def compiled(table: str) -> Executable:
    """Functions of every case: of n rows of activations, and with `_one` behind the name of one."""
    module = ModuleBuilder()
    for case in CASES:
        format, rows, columns = case
        for n, ending in ((N, ""), (1, "_one")):
            b = FunctionBuilder(name_of(*case) + ending)
            x = b.param("x", Tensor((n, columns), "f32"))
            weight = Constant(name_of(*case), Tensor((len(WEIGHTS[name_of(*case)]),), "u32"))
            w = b.op(dequantize, weight, format=FORMATS[format], rows=rows, columns=columns)
            module.add_function(b.finish(b.op(ops.linear, x, w)))
    return compile(module.finish(), WASM, TABLES[table])


@cache
def runner(table: str, relaxed: bool, parts: int) -> Runner:
    executable = compiled(table)
    if relaxed and build_relaxed_module("") is None:
        pytest.skip("no compiler here knows relaxed SIMD")
    device: CpuDevice = compiled_device([kernel.source for kernel in executable.kernels], relaxed)
    device.parts = parts
    return Runner.of(executable, WEIGHTS, device=device)


@pytest.fixture(scope="module", autouse=True)
def _free() -> Iterator[None]:
    """wasmtime complains of what lives until the interpreter ends."""
    yield
    runner.cache_clear()


def activations(n: int, columns: int) -> Array:
    """Some groups are large, one is zero."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, columns)) * np.exp(rng.standard_normal((n, columns // 32))).repeat(32, axis=1)
    x[0, :32] = 0
    return x.astype(np.float32)


def result(table: str, name: str, x: Array, relaxed: bool = False, parts: int = 1) -> Array:
    (y,) = runner(table, relaxed, parts).call(name + ("_one" if len(x) == 1 else ""), {"x": x}).values()
    return y


def routines(table: str) -> set[str]:
    return {kernel.source.name for kernel in compiled(table).kernels}


def test_the_table_is_used() -> None:
    assert routines("exact") == {"float_linear"}
    assert routines("quantized") == {"float_linear", "quantize_activations", "quantized_vector", "quantized_matrix"}


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: name_of(*case))
@pytest.mark.parametrize("table", TABLES)
def test_against_the_reference_programs(table: str, case: tuple[str, int, int], relaxed: bool, parts: int) -> None:
    """The same whole numbers are added up: what differs is the order in which floats are."""
    name, columns = name_of(*case), case[2]
    interpreter = Interpreter(compiled(table).module, WEIGHTS)
    for n in (1, 2, 3, 4, 5, 130):
        x = activations(n, columns)
        expected = interpreter.call(name + ("_one" if n == 1 else ""), x)
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(result(table, name, x, relaxed, parts), expected, rtol=0, atol=1e-5 * scale)


def exact(case: tuple[str, int, int], x: Array) -> Array:
    format, rows, columns = case
    weight = unpack(FORMATS[format], WEIGHTS[name_of(*case)], rows, columns)
    product: Array = x.astype(np.float64) @ weight.astype(np.float64).T
    return product


def rounding(case: tuple[str, int, int], x: Array) -> Array:
    """The most that codes of 8 bits can change: half a step of each activation, times its weight."""
    format, rows, columns = case
    weight = np.abs(unpack(FORMATS[format], WEIGHTS[name_of(*case)], rows, columns)).astype(np.float64)
    step = np.abs(x).reshape(len(x), -1, 32).max(axis=2).repeat(32, axis=1) / 127
    most: Array = (step / 2) @ weight.T
    return most


def none(case: tuple[str, int, int], x: Array) -> Array:
    return np.zeros((len(x), case[1]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: name_of(*case))
@pytest.mark.parametrize(("table", "allowed"), [("exact", none), ("quantized", rounding)])
def test_against_numpy(table: str, allowed: Callable[..., Array], case: tuple[str, int, int]) -> None:
    for n in (1, 7):
        x = activations(n, case[2])
        expected = exact(case, x)
        most = allowed(case, x) if case[0] in GROUPED else none(case, x)
        difference = np.abs(result(table, name_of(*case), x) - expected)
        assert (difference <= 1.001 * most + 1e-5 * max(1.0, float(np.abs(expected).max()))).all()


def test_codes_are_really_of_8_bits() -> None:
    """Or the test above could not tell that the quantized table is used."""
    case = ("Q4_1", 37, 192)
    x = activations(7, 192)
    assert np.abs(result("quantized", name_of(*case), x) - exact(case, x)).max() > 1e-3
