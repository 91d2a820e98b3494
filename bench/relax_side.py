"""The other side of versus_relax.py: Apache TVM's Relax on the same model. Runs where TVM is, without webrelax.

    relax_side.py FOLDER

FOLDER holds `job.json` (see `Job`) and `weights.npz`; `found.json` and `logits.npz` are written beside them. The passes
are those of TVM's own WebGPU pipelines (MLC LLM's order): FuseTransposeMatmul, so that weights stay as they lie in
memory, then legalizing, fusion, DLight's schedules, and static memory planning under the declared bounds.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, sym, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.s_tir import dlight

HOST = {"kind": "llvm", "mtriple": "wasm32-unknown-unknown-wasm"}
BYTES = {"float32": 4, "int32": 4, "int64": 8, "uint8": 1}


@dataclass(frozen=True)
class Sizes:
    """The model, as versus_relax.py writes it from webrelax's `LlamaConfig`."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    norm_eps: float
    rope_theta: float


@dataclass(frozen=True)
class Job:
    """`bound` tokens at most, prefill also planned for the `chunks`; compiled `runs` times.

    `values` is the model whose logits are compared: those after `prompt`, and after `token` behind it.
    """

    model: Sizes
    values: Sizes
    bound: int
    chunks: Sequence[int]
    runs: int
    prompt: Sequence[int]
    token: int


# --- the model ---


def rope(x: Any, offset: Any, theta: float) -> Any:
    """Rotates the halves of each head of [b, n, heads, size] by the angle of its position, which starts at `offset`."""

    def rotate(x: Any, start: Any) -> Any:
        size = int(x.shape[3])
        half = size // 2

        def element(b: Any, i: Any, h: Any, d: Any) -> Any:
            exponent = (2 * (d % half)).astype("float32") / float(size)
            angle = (i + start).astype("float32") / tirx.power(tirx.const(theta, "float32"), exponent)
            other = tirx.if_then_else(d < half, -x[b, i, h, d + half], x[b, i, h, d - half])
            return tirx.cos(angle) * x[b, i, h, d] + tirx.sin(angle) * other

        return te.compute(x.shape, element, name="rope")

    return op.tensor_expr_op(rotate, "rope", [x, offset])


def causal(scores: Any, past: Any) -> Any:
    """Scores [b, heads, n, keys] with those of later keys far below all others."""

    def mask(s: Any, start: Any) -> Any:
        lowest = tirx.min_value(s.dtype)
        return te.compute(
            s.shape, lambda b, h, i, j: tirx.if_then_else(j <= i + start, s[b, h, i, j], lowest), name="mask"
        )

    return op.tensor_expr_op(mask, "mask", [scores, past])


def last_row(x: Any) -> Any:
    def last(x: Any) -> Any:
        shape = (x.shape[0], 1, x.shape[2])
        return te.compute(shape, lambda b, _, d: x[b, x.shape[1] - 1, d], name="last")

    return op.tensor_expr_op(last, "last", [x])


class Layer(nn.Module):  # type: ignore[misc]
    """Grouped-query attention over a functional cache, and a gated SiLU network; QKV and gate/up are a matmul each."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        width = sizes.heads * sizes.head_size
        self.attention_norm = nn.RMSNorm(sizes.hidden, -1, sizes.norm_eps, bias=False)
        self.qkv = nn.Linear(sizes.hidden, width + 2 * sizes.kv_heads * sizes.head_size, bias=False)
        self.output = nn.Linear(width, sizes.hidden, bias=False)
        self.feed_forward_norm = nn.RMSNorm(sizes.hidden, -1, sizes.norm_eps, bias=False)
        self.gate_up = nn.Linear(sizes.hidden, 2 * sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, sizes.hidden, bias=False)

    def forward(self, x: Any, cache: Sequence[Any], past: Any) -> tuple[Any, Any, Any]:
        mixed, keys, values = self.attention(self.attention_norm(x), cache, past)
        x = x + mixed
        gate, up = op.split(self.gate_up(self.feed_forward_norm(x)), 2, axis=-1)
        return x + self.down(op.silu(gate) * up), keys, values

    def attention(self, x: Any, cache: Sequence[Any], past: Any) -> tuple[Any, Any, Any]:
        sizes = self.sizes
        b, n, _ = x.shape
        heads = op.reshape(self.qkv(x), (b, n, sizes.heads + 2 * sizes.kv_heads, sizes.head_size))
        q, k, v = op.split(heads, [sizes.heads, sizes.heads + sizes.kv_heads], axis=2)
        q, k = rope(q, past, sizes.rope_theta), rope(k, past, sizes.rope_theta)
        if cache:
            k, v = op.concat([cache[0], k], dim=1), op.concat([cache[1], v], dim=1)
        group = sizes.heads // sizes.kv_heads
        per_head = (q, op.repeat(k, group, axis=2), op.repeat(v, group, axis=2))
        qh, kh, vh = (op.permute_dims(a, [0, 2, 1, 3]) for a in per_head)
        scores = op.matmul(qh, op.permute_dims(kh, [0, 1, 3, 2])) * (sizes.head_size**-0.5)
        if n != 1:
            scores = causal(scores, past)
        mixed = op.permute_dims(op.matmul(op.softmax(scores, axis=-1), vh), [0, 2, 1, 3])
        return self.output(op.reshape(mixed, (b, n, sizes.heads * sizes.head_size))), k, v


class Model(nn.Module):  # type: ignore[misc]
    """A decoder with a tied embedding: (logits [1, 1, vocabulary] of the last token, keys and values of each layer)."""

    def __init__(self, sizes: Sizes) -> None:
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList([Layer(sizes) for _ in range(sizes.layers)])
        self.norm = nn.RMSNorm(sizes.hidden, -1, sizes.norm_eps, bias=False)

    def run(self, ids: Any, caches: Sequence[Any], past: Any) -> tuple[Any, ...]:
        x = self.embedding(ids)
        after = []
        for at, layer in enumerate(self.layers):
            x, keys, values = layer(x, caches[2 * at : 2 * at + 2], past)
            after += [keys, values]
        if x.shape[1] != 1:
            x = last_row(x)
        logits = op.matmul(self.norm(x), op.permute_dims(self.embedding.weight), out_dtype="float32")
        return (logits, *after)

    def prefill(self, ids: Any) -> tuple[Any, ...]:
        return self.run(ids, (), tirx.const(0, "int64"))

    def decode(self, ids: Any, caches: Sequence[Any]) -> tuple[Any, ...]:
        return self.run(ids, caches, caches[0].shape[1])


def export(sizes: Sizes) -> tuple[Any, list[str]]:
    """The module with `prefill` (n tokens, nothing before) and `decode` (one after m), and the parameters' names."""
    model = Model(sizes)
    model.to("float32")
    packed = {"param_mode": "packed", "effect_mode": "none"}
    cache = nn.spec.Tensor([1, "m", sizes.kv_heads, sizes.head_size], "float32")
    module, parameters = model.export_tvm(
        {
            "prefill": {"ids": nn.spec.Tensor([1, "n"], "int32"), "$": packed},
            "decode": {"ids": nn.spec.Tensor([1, 1], "int32"), "caches": [cache] * (2 * sizes.layers), "$": packed},
        }
    )
    return module, [name for name, _ in parameters]


# --- compiling ---


@dataclass(frozen=True)
class Compiled:
    """`before` and `planned` are the module around memory planning, `final` what code was generated from."""

    legalized: Any
    before: Any
    planned: Any
    final: Any
    seconds: Mapping[str, float]


def bounded(module: Any, bounds: Mapping[str, int]) -> Any:
    """The module whose functions declare the upper bounds of their variables."""
    functions = {
        name: f.with_attr("tir_var_upper_bound", dict(bounds)) if isinstance(f, relax.Function) else f
        for name, f in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def compile_once(module: Any, target: Any, bounds: Mapping[str, int]) -> Compiled:
    transform, gpu = relax.transform, dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    fuse = (
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(["prefill", "decode"]),
        dlight.ApplyDefaultSchedule(*rules),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    )
    finish = (
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    )
    with target:
        start = time.perf_counter()
        legalized = tvm.ir.transform.Sequential([transform.FuseTransposeMatmul(), transform.LegalizeOps()])(module)
        before = bounded(tvm.ir.transform.Sequential(fuse)(legalized), bounds)
        planned = transform.StaticPlanBlockMemory()(before)
        final = tvm.ir.transform.Sequential(finish)(planned)
        lowered = time.perf_counter()
        tvm.compile(final, target=target, relax_pipeline=None, tir_pipeline="default")
        end = time.perf_counter()
    return Compiled(legalized, before, planned, final, {"passes": lowered - start, "codegen": end - lowered})


# --- counting ---


def calls(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name of what is called, call) for each call of a tensor program or a built-in operator in a function."""
    found = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call):
            found.append(expr)

    relax.analysis.post_order_visit(module[name].body, visit)
    for call in found:
        if isinstance(call.op, tvm.ir.GlobalVar):
            yield call.op.name_hint, call
        elif isinstance(call.op, tvm.ir.Op):
            yield call.args[0].name_hint if call.op.name == "relax.call_tir" else call.op.name, call


def device_programs(module: Any) -> list[str]:
    """The tensor programs that run on the device: all but the one that computes shapes on the host."""
    return [
        g.name_hint
        for g, f in module.functions.items()
        if isinstance(f, tirx.PrimFunc) and "tirx.is_host_func" not in (f.attrs or {})
    ]


def evaluate(size: Any, env: Mapping[str, int]) -> int:
    """A size at given values of its variables."""
    if isinstance(size, int):
        return size
    analyzer = sym.Analyzer()
    for variable in tirx.analysis.undefined_vars(size):
        analyzer.bind(variable, tirx.const(env[variable.name], "int64"))
    return int(analyzer.simplify(size))


def memory(compiled: Compiled, name: str, env: Mapping[str, int]) -> dict[str, int]:
    """Bytes of a function's tensors without reuse, of the plan's storages, and of the results, which are outside it."""
    unplanned = results = storages = 0
    for module in (compiled.before, compiled.planned):
        tensors = 0
        for called, call in calls(module, name):
            if called == "relax.builtin.alloc_tensor":
                size = BYTES[str(call.args[1].value)]
                for extent in call.args[0].values:
                    size *= evaluate(extent, env)
                tensors += size
            elif called == "relax.memory.alloc_storage":
                storages += evaluate(call.args[0].values[0], env)
        unplanned, results = unplanned or tensors, tensors
    return {"unplanned": unplanned, "planned": storages, "results": results}


def device_source(final: Any, target: Any) -> str:
    """The WGSL of all programs."""
    programs = {g: final[g] for g in final.functions if g.name_hint in device_programs(final)}
    found: list[str] = []

    def walk(module: Any) -> None:
        found.extend([module.inspect_source()] if module.kind == "webgpu" else [])
        for part in module.imports:
            walk(part)

    with target:
        walk(tvm.tirx.build(tvm.IRModule(programs), target=target))
    return "".join(found)


def kernels(source: str) -> dict[str, int]:
    """Bytes of WGSL by entry point. Each comes under a comment that names it, which is no part of it."""
    parts = re.split(r"//-+\n// Function: (\w+)\n//-+\n", "//-\n" + source.removeprefix("//-\n"))
    return dict(zip(parts[1::2], map(len, parts[2::2]), strict=True))


def inspect(compiled: Compiled, target: Any, job: Job) -> dict[str, Any]:
    source = device_source(compiled.final, target)
    sizes = kernels(source)
    programs = device_programs(compiled.final)
    launches = Counter(re.sub(r"_kernel(_\d+)?$", "", kernel) for kernel in sizes)
    if unknown := set(launches) - set(programs):
        raise SystemExit(f"relax_side: kernels of no program: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {"wgsl": len(source), "kernels": sizes}
    for name in ("prefill", "decode"):
        called = Counter(callee for callee, _ in calls(compiled.final, name) if callee in launches)
        legalized = {g.name_hint for g, f in compiled.legalized.functions.items() if isinstance(f, tirx.PrimFunc)}
        found[name] = {
            "operators": sum(callee in legalized for callee, _ in calls(compiled.legalized, name)),
            "programs": called.total(),
            "dispatches": sum(launches[callee] * count for callee, count in called.items()),
            "memory": memory(compiled, name, {"n": job.bound, "m": job.bound - 1}),
        }
    return found


def prefill_memory(module: Any, target: Any, chunk: int, bound: int) -> dict[str, int]:
    compiled = compile_once(module, target, {"n": chunk, "m": bound - 1})
    return memory(compiled, "prefill", {"n": chunk, "m": bound - 1})


# --- running ---


def logits(job: Job, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The logits after the prompt and after one more token, on the CPU, by TVM's default pipeline."""
    module, names = export(job.values)
    device = tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), device)
    parameters = [tvm.runtime.tensor(weights[name], device) for name in names]

    def ids(tokens: Sequence[int]) -> Any:
        return tvm.runtime.tensor(np.array([tokens], np.int32), device)

    prefill, *caches = machine["prefill"](ids(job.prompt), parameters)
    decode, *_ = machine["decode"](ids([job.token]), caches, parameters)
    return {"prefill": prefill.numpy().ravel(), "decode": decode.numpy().ravel()}


def main() -> None:
    folder = Path(sys.argv[1])
    given = json.loads((folder / "job.json").read_text())
    job = Job(**given | {key: Sizes(**given[key]) for key in ("model", "values")})
    target = tvm.target.Target("webgpu", host=HOST)
    module, _ = export(job.model)
    bounds = {"n": job.bound, "m": job.bound - 1}
    compiled = [compile_once(module, target, bounds) for _ in range(job.runs)]
    found = {
        "version": tvm.__version__,
        "seconds": [c.seconds for c in compiled],
        **inspect(compiled[-1], target, job),
        "chunks": {chunk: prefill_memory(module, target, chunk, job.bound) for chunk in job.chunks},
    }
    with np.load(folder / "weights.npz") as weights:
        np.savez(folder / "logits.npz", **logits(job, weights))
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
