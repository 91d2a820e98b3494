"""Times single kernels of a SmolLM2-sized model: `bench/kernels.py [--browser]`.

Prints characters of WGSL, milliseconds to compile and for a dispatch, and GFLOP/s and GB/s of weights read from them;
on this machine's Vulkan device or, with --browser, in Chromium, whose WebGPU runs in software unless a GPU is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webrelax.compiler.native.device import TABLE_ALIGNMENT, default_device
from webrelax.compiler.schedule import Kernel, rule_for, schedule
from webrelax.compiler.source import KernelSource
from webrelax.compiler.symbolic import Expr, Var, evaluate
from webrelax.compiler.tir import Bitcast, Cast, Handle, Index, Program, ProgramBuilder, Scalar, exp, half, rsqrt
from webrelax.compiler.wgsl import emit

N = Var("n", 1, 128)
Weight = Callable[[ProgramBuilder, str, int, int], Handle]

ROOT = Path(__file__).parents[1]

# With any 13 bits below: an f32, or two halves, of ordinary size. Numbers too small to be normal are slow on a CPU.
NEAR_ONE = 0x3F800000


def nibbles(b: ProgramBuilder, name: str, rows: int, columns: int) -> Handle:
    """4-bit codes with a scale and a minimum a group of 32."""
    section = rows * columns // 8
    packed = b.input(name, (section + rows * columns // 32,), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = (packed[at // 8] >> Cast("u32", Index(at % 8 * 4))) & 15
        pair = packed[section + at // 32]
        return Cast("f32", code) * half(pair) + half(pair >> 16)

    return b.compute(f"{name}_decoded", (rows, columns), element)


def signed_bytes(b: ProgramBuilder, name: str, rows: int, columns: int) -> Handle:
    """Signed bytes with a scale a group of 32."""
    section = rows * columns // 4
    packed = b.input(name, (section + rows * columns // 64,), "u32")

    def element(r: Expr, k: Expr) -> Scalar:
        at = r * columns + k
        code = Bitcast("i32", packed[at // 4] << Cast("u32", Index(24 - at % 4 * 8))) >> 24
        return Cast("f32", code) * half(packed[section + at // 64] >> Cast("u32", Index(at // 32 % 2 * 16)))

    return b.compute(f"{name}_decoded", (rows, columns), element)


def linear(n: Expr | int, columns: int, *rows: int, weight: Weight = nibbles) -> Program:
    """x[n, columns] times each weight's transpose; several are independent products, side by side."""
    b = ProgramBuilder("linear")
    x = b.input("x", (n, columns), "f32")
    weights = [weight(b, f"w{at}", count, columns) for at, count in enumerate(rows)]
    return b.finish(
        *(
            b.reduce(f"y{at}", (n, count), (columns,), lambda i, o, k, w=w: x[i, k] * w[o, k])
            for at, (w, count) in enumerate(zip(weights, rows, strict=True))
        )
    )


def gated(n: Expr | int, columns: int, rows: int) -> Program:
    """silu(x times one weight) * (x times another one)."""
    b = ProgramBuilder("gated")
    x = b.input("x", (n, columns), "f32")
    w, v = nibbles(b, "w", rows, columns), nibbles(b, "v", rows, columns)
    gate = b.reduce("gate", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    up = b.reduce("up", (n, rows), (columns,), lambda i, o, k: x[i, k] * v[o, k])
    return b.finish(b.compute("y", (n, rows), lambda i, o: gate[i, o] / (exp(-gate[i, o]) + 1) * up[i, o]))


def norm(n: Expr | int, columns: int) -> Program:
    b = ProgramBuilder("rms_norm")
    x, g = b.input("x", (n, columns), "f32"), b.input("g", (columns,), "f32")
    squares = b.reduce("squares", (n,), (columns,), lambda i, k: x[i, k] * x[i, k])
    return b.finish(b.compute("y", (n, columns), lambda i, j: x[i, j] * rsqrt(squares[i] / columns + 1e-5) * g[j]))


@dataclass(frozen=True)
class Job:
    """A kernel ready to run, with the sizes of its buffers, and the products that it computes."""

    title: str
    rule: str
    kernel: Kernel
    source: KernelSource
    grid: tuple[int, ...]
    sizes: tuple[int, ...]
    table: tuple[int, ...]
    products: int

    @property
    def weight_bytes(self) -> int:
        words = [s for s, b in zip(self.sizes, self.kernel.bindings, strict=True) if b.buffer.dtype == "u32"]
        return sum(words)


def job(title: str, program: Program, n: int, products: int) -> Job:
    kernel = schedule(program)
    symbols = dict.fromkeys(program.symbols, n)
    return Job(
        title,
        rule_for(program).name,
        kernel,
        emit(kernel, {s: at for at, s in enumerate(program.symbols)}, 4),
        tuple(evaluate(e, symbols) for e in kernel.grid),
        tuple(evaluate(b.buffer.size, symbols) for b in kernel.bindings),
        tuple(symbols.values()),
        n * products,
    )


def jobs() -> Iterator[Job]:
    yield job("query, key, value, 1 token", linear(1, 576, 576, 192, 192), 1, 576 * 960)
    yield job("output, 1 token", linear(1, 576, 576), 1, 576 * 576)
    yield job("gate and up, 1 token", gated(1, 576, 1536), 1, 576 * 3072)
    yield job("down, 1 token", linear(1, 1536, 576), 1, 576 * 1536)
    yield job("vocabulary (8 bits), 1 token", linear(1, 576, 49152, weight=signed_bytes), 1, 576 * 49152)
    yield job("norm, 1 token", norm(1, 576), 1, 576)
    yield job("query, 128 tokens", linear(N, 576, 576), 128, 576 * 576)
    yield job("gate and up, 128 tokens", gated(N, 576, 1536), 128, 576 * 3072)
    yield job("down, 128 tokens", linear(N, 1536, 576), 128, 576 * 1536)
    yield job("norm, 128 tokens", norm(N, 576), 128, 576)


def ready(job: Job) -> tuple[float, Callable[[], float]]:
    """(seconds to compile, what runs a dispatch and gives its seconds) on the Vulkan device."""
    device = default_device()
    start = time.perf_counter()
    pipeline = device.pipeline(job.source)
    compiled = time.perf_counter() - start
    table = device.table(TABLE_ALIGNMENT)
    row = np.zeros(TABLE_ALIGNMENT // 4, np.int32)
    row[: len(job.table)] = job.table
    device.write(table, row)
    bindings: list[tuple[Any, int, int]] = []
    for size in job.sizes:
        buffer = device.buffer(size)
        device.write(buffer, NEAR_ONE | np.random.default_rng(0).integers(0, 1 << 13, size // 4, dtype=np.uint32))
        bindings.append((buffer, 0, size))
    group = device.bind(pipeline, table, TABLE_ALIGNMENT, bindings)
    x, y, z = job.grid

    def run() -> float:
        start = time.perf_counter()
        device.submit([(pipeline, group, (x, y, z), 0)])
        device.read(bindings[-1][0], 4)
        return time.perf_counter() - start

    return compiled, run


def native(job: Job, repeat: int) -> tuple[float, float]:
    """(seconds to compile, best seconds of a dispatch) on the Vulkan device."""
    compiled, dispatch = ready(job)
    return compiled, min(dispatch() for _ in range(repeat))


RUN = """
async ({ wgsl, access, grid, sizes, table, repeat, nearOne }) => {
  globalThis.device ??= await (await navigator.gpu.requestAdapter()).requestDevice();
  const buffers = access.map((mode) => ({ type: mode === "read" ? "read-only-storage" : "storage" }));
  const entries = [{ type: "uniform", hasDynamicOffset: true }, ...buffers].map((buffer, binding) => (
    { binding, visibility: GPUShaderStage.COMPUTE, buffer }
  ));
  const start = performance.now();
  const module = device.createShaderModule({ code: wgsl });
  const layout = device.createBindGroupLayout({ entries });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module },
  });
  const compile = performance.now() - start;
  const make = (words, usage) => {
    const buffer = device.createBuffer({ size: words.byteLength, usage: usage | GPUBufferUsage.COPY_DST });
    device.queue.writeBuffer(buffer, 0, words);
    return buffer;
  };
  const row = new Int32Array(64);
  row.set(table);
  const word = (_, at) => nearOne | ((at * 2654435761) & 0x1fff);
  const memory = sizes.map((size) => make(Uint32Array.from({ length: size / 4 }, word), GPUBufferUsage.STORAGE));
  const resources = [{ buffer: make(row, GPUBufferUsage.UNIFORM), size: 256 }, ...memory.map((buffer) => ({ buffer }))];
  const group = device.createBindGroup({
    layout, entries: resources.map((resource, binding) => ({ binding, resource })),
  });
  let best = Infinity;
  for (let i = 0; i < repeat; i++) {
    const begin = performance.now();
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group, [0]);
    pass.dispatchWorkgroups(...grid);
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    best = Math.min(best, performance.now() - begin);
  }
  memory.forEach((buffer) => buffer.destroy());
  return [compile / 1e3, best / 1e3];
}
"""


def browser(given: Sequence[Job], repeat: int) -> Iterator[tuple[float, float]]:
    """The same in Chromium."""
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(ROOT))
    from e2e.chromium import chromium

    with chromium() as instance:
        page = instance.new_page()
        page.set_default_timeout(0)
        page.route("**/*", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
        page.goto("http://localhost/")  # WebGPU needs a secure context
        for each in given:
            arguments: Mapping[str, Any] = {
                "wgsl": each.source.text,
                "access": each.source.access,
                "grid": each.grid,
                "sizes": each.sizes,
                "table": each.table,
                "repeat": repeat,
                "nearOne": NEAR_ONE,
            }
            compiled, best = page.evaluate(RUN, arguments)
            yield compiled, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--browser", action="store_true", help="in Chromium")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    given = list(jobs())
    times = browser(given, args.repeat) if args.browser else (native(each, args.repeat) for each in given)
    print("Chromium" if args.browser else default_device().description)
    print(f"{'kernel':<30}{'rule':<8}{'WGSL':>6}{'compile':>9}{'ms':>9}{'GFLOP/s':>9}{'GB/s':>7}")
    for each, (compiled, best) in zip(given, times, strict=True):
        flops, bytes_read = 2 * each.products / best / 1e9, each.weight_bytes / best / 1e9
        text = len(each.source.text)
        spent = f"{compiled * 1e3:>9.0f}{best * 1e3:>9.2f}"
        print(f"{each.title:<30}{each.rule:<8}{text:>6}{spent}{flops:>9.2f}{bytes_read:>7.2f}")


if __name__ == "__main__":
    main()
