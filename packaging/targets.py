"""Compiles a model for each target of a site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..compiler.executable import CompiledKernel
from ..compiler.ir import Module
from ..compiler.pipeline import compile
from ..compiler.target import WASM, WEBGPU
from ..compiler.wasm import build_module, build_relaxed_module, module_source
from ..compiler.wasm.library import EXACT_LIBRARY, LIBRARY
from .bundle import Profile, TargetBuild, as_json


def build_webgpu(module: Module, exact: bool) -> TargetBuild:
    """WGSL kernels, compiled by the browser; they are always exact."""
    executable = compile(module, WEBGPU)
    kernels = as_json({"kernels": [_kernel(kernel) for kernel in executable.kernels]})
    return TargetBuild(WEBGPU, executable, (Profile(WEBGPU.profile, WEBGPU.features, "json", kernels),))


def build_wasm(module: Module, exact: bool) -> TargetBuild:
    """A WebAssembly module of kernels, and one with relaxed SIMD where a compiler is there that can make it.

    Raises WebrelaxError where emcc is missing or fails.
    """
    executable = compile(module, WASM, EXACT_LIBRARY if exact else LIBRARY)
    source = module_source(kernel.source for kernel in executable.kernels)
    profiles = [Profile(WASM.profile, WASM.features, "wasm", build_module(source))]
    if (relaxed := build_relaxed_module(source)) is not None:
        profiles.append(Profile("relaxed", ("relaxed-simd",), "wasm", relaxed))
    return TargetBuild(WASM, executable, tuple(profiles))


BUILDERS: Mapping[str, Callable[[Module, bool], TargetBuild]] = {"webgpu": build_webgpu, "wasm": build_wasm}


def build_targets(module: Module, names: Sequence[str], exact: bool = False) -> tuple[TargetBuild, ...]:
    """The builds of these targets, in the order of the table. `exact`: without 8-bit activations."""
    return tuple(build(module, exact) for name, build in BUILDERS.items() if name in names)


def _kernel(kernel: CompiledKernel) -> dict[str, object]:
    source = kernel.source
    return {
        "name": source.name,
        "entry": source.entry,
        "wgsl": source.text,
        "workgroup": source.workgroup,
        "access": source.access,
    }
