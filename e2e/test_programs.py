"""Compiled modules that are no language models, in the page: shapes that only a run tells, choices, replay."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from webrelax.compiler import ops
from webrelax.compiler.ir import Function, FunctionBuilder, Module, ModuleBuilder, ShapeValue, Tensor
from webrelax.compiler.symbolic import Var, as_expr
from webrelax.packaging.bundle import ModelInfo, write_bundle
from webrelax.packaging.serve import serving
from webrelax.packaging.targets import build_targets

WEB = Path(__file__).parents[1] / "web"
Array = np.ndarray[Any, Any]

# Opens a target of the bundle of the folder's name; run(name, variables, inputs, result, replay) gives a result's bits.
OPEN = """
async ([folder, target]) => {
  const names = ["executor", "loader", "manifest", "vm", "webgpu_target", "wasm_target"];
  const [{ Executor }, { Loader }, { forTarget }, { loadVM }, { webgpuDriver }, { wasmDriver }] = await Promise.all(
    names.map((name) => import(`./${name}.js`)));
  const base = new URL(`${folder}/`, location.href);
  const bundle = await (await fetch(new URL("manifest.json", base))).json();
  const loader = new Loader(base, { files: bundle.files });
  const manifest = forTarget(bundle, target);
  const driver = target === "wasm" ? wasmDriver({ profile: null, threads: 1 }) : webgpuDriver({ profile: null });
  const device = await driver.open(manifest);
  const options = { signal: null, onCompiled: () => {} };
  const backend = await driver.prepare(device, manifest, loader, options);
  const wasm = new Uint8Array(await (await fetch("vm.wasm")).arrayBuffer());
  const vm = await loadVM(wasm, await loader.file(manifest.profiles[device.profile].module));
  const executor = new Executor(manifest, vm, backend);
  window.executor = executor;
  window.run = async (name, variables, inputs, result, replay = true) => {
    executor.replay = replay;
    const data = Object.fromEntries(Object.entries(inputs).map(([key, words]) => [key, Int32Array.from(words)]));
    try {
      const found = await executor.run(name, variables, data, result);
      return [...new Int32Array(found.buffer)];
    } catch (error) {
      return { code: error.code, message: error.message };
    }
  };
}
"""
N = Var("n", 1, 8)


def f32(*shape: Any) -> Tensor:
    return Tensor(shape, "f32")


def figure_3() -> Function:
    """Relax, fig. 3, and where its argument is not zero."""
    b = FunctionBuilder("distinct")
    x = b.param("x", f32(N, 2, 2))
    flat = b.op(ops.flatten, b.op(ops.reshape, x, ShapeValue((N, as_expr(4)))))
    cast = b.match_cast(b.op(ops.unique, flat), f32(Var("u", 0, 8)), hint="found")
    return b.finish(b.op(ops.exp_of, cast, hint="distinct"), b.op(ops.nonzero, x, hint="places"))


def choice() -> Function:
    b = FunctionBuilder("choice")
    flag, x, y = b.param("flag", Tensor((1,), "i32")), b.param("x", f32(N, 4)), b.param("y", f32(N, 4))
    then, orelse = b.arm(), b.arm()
    both = then.op(ops.concat, x, y, axis=0)
    chosen = b.if_else(flag, then.block(both), orelse.block(orelse.op(ops.negate, y)), hint="chosen")
    return b.finish(chosen)


def captured() -> Function:
    b = FunctionBuilder("captured")
    x = b.param("x", f32(N, 4))
    return b.finish(b.op(ops.softmax, b.op(ops.exp_of, b.op(ops.softmax, x)), hint="y"))


def everything() -> Module:
    module = ModuleBuilder()
    for function in (figure_3(), choice(), captured()):
        module.add_function(function)
    return module.finish()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = tmp_path_factory.mktemp("programs") / "site"
    shutil.copytree(WEB, site)
    (site / "program").mkdir()
    info = ModelInfo("program", "none", 1, 1, 1)
    write_bundle(site / "program", build_targets(everything(), ["webgpu", "wasm"]), info, {}, {})
    with serving(site) as served:
        yield served


def open_programs(page: Page, address: str, target: str) -> Page:
    page.goto(address + "style.css")
    page.evaluate(OPEN, ["program", target])
    return page


@pytest.fixture(scope="module", params=["webgpu", "wasm"])
def programs(shared_page: Page, address: str, request: pytest.FixtureRequest) -> Page:
    return open_programs(shared_page, address, request.param)


def words(array: Array) -> list[int]:
    return np.ascontiguousarray(array).view(np.int32).ravel().tolist()


def run(
    page: Page, name: str, inputs: Mapping[str, Array], result: str, replay: bool = True, **variables: int
) -> Sequence[int]:
    given = {key: words(value) for key, value in inputs.items()}
    found = page.evaluate(
        "([name, variables, inputs, result, replay]) => run(name, variables, inputs, result, replay)",
        [name, variables, given, result, replay],
    )
    assert isinstance(found, list), found
    return found


def floats(found: Sequence[int]) -> Array:
    return np.array(found, np.int32).view(np.float32)


@pytest.mark.parametrize(("n", "most"), [(1, 2), (8, 3), (5, 1), (8, 7)])
def test_figure_3(programs: Page, n: int, most: int) -> None:
    x = np.random.default_rng(n).integers(0, most, (n, 2, 2)).astype(np.float32)
    found = floats(run(programs, "distinct", {"x": x}, "distinct", n=n))
    np.testing.assert_allclose(found, np.exp(np.unique(x)), rtol=1e-5)
    places = run(programs, "distinct", {"x": x}, "places", n=n)
    np.testing.assert_array_equal(places, np.array(np.nonzero(x)).ravel())


def test_a_cast_that_does_not_hold_is_one_sentence(programs: Page) -> None:
    x = np.arange(12, dtype=np.float32)
    found = programs.evaluate("(x) => run('distinct', { n: 3 }, { x }, 'distinct')", words(x))
    assert "distinct: dimension 0 of found (u): expected at most 8, got 12" in found["message"]
    # And the next call runs.
    assert len(run(programs, "distinct", {"x": x % 4}, "distinct", n=3)) == 4


@pytest.mark.parametrize("flag", [1, 0])
def test_a_choice(programs: Page, flag: int) -> None:
    rng = np.random.default_rng(flag)
    x, y = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    found = run(programs, "choice", {"flag": np.array([flag], np.int32), "x": x, "y": y}, "chosen", n=3)
    np.testing.assert_array_equal(floats(found), (np.concatenate([x, y]) if flag else -y).ravel())


def test_replayed_dispatches_give_the_same_bits(programs: Page) -> None:
    functions = programs.evaluate("() => executor.manifest.functions")
    assert {name: each["captured"] for name, each in functions.items()} == {
        "distinct": False, "choice": False, "captured": True,
    }  # fmt: skip
    for n in (1, 8, 3, 3):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        first, second = (run(programs, "captured", {"x": x}, "y", replay, n=n) for replay in (True, False))
        assert first == second

        def softmax(v: Array) -> Array:
            e = np.exp(v - v.max(-1, keepdims=True))
            total: Array = e / e.sum(-1, keepdims=True)
            return total

        np.testing.assert_allclose(floats(first).reshape(n, 4), softmax(np.exp(softmax(x))), rtol=1e-5)


def test_a_replaced_buffer_is_what_the_next_replay_uses(page: Page, address: str) -> None:
    """The input buffer, with other contents: the recording of before would read the old one."""
    programs = open_programs(page, address, "webgpu")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    before = run(programs, "captured", {"x": x}, "y", n=2)
    programs.evaluate(
        """() => {
          const at = executor.manifest.functions.captured.arguments[0].buffer;
          const { size } = executor.manifest.buffers[at];
          const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
          executor.backend.replaceBuffer(at, executor.backend.device.gpu.createBuffer({ size, usage }));
        }"""
    )
    y = np.flip(x).copy()
    found = floats(run(programs, "captured", {"x": y}, "y", n=2)).reshape(2, 4)
    np.testing.assert_allclose(found, floats(before).reshape(2, 4)[:, ::-1], rtol=1e-6)
