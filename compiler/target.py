"""What the code is compiled for: features and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of device. The defaults are the limits that every WebGPU device promises (sizes in bytes)."""

    name: str = "webgpu"
    language: Literal["wgsl", "c"] = "wgsl"
    profile: str = "f32"
    features: tuple[str, ...] = ()
    storage_buffers: int = 8
    workgroup_memory: int = 16 << 10
    workgroup_invocations: int = 256
    workgroup_size: tuple[int, int, int] = (256, 256, 64)
    grid: int = 65535
    binding_size: int = 128 << 20
    buffer_size: int = 256 << 20
    offset_alignment: int = 256
    # As many threads keep a small GPU busy: a kernel that has them rather gives each more to do, which saves loads.
    parallel_threads: int = 2048
    # How many products of four numbers a loop body holds at most: more need fewer loads, but more text to compile.
    unrolled_products: int = 16


WEBGPU = Target()

# One thread a workgroup, which needs no memory beside its registers; the host splits a grid among its threads.
WASM = Target(
    name="wasm",
    language="c",
    profile="simd128",
    storage_buffers=64,
    workgroup_memory=0,
    workgroup_invocations=1,
    workgroup_size=(1, 1, 1),
    binding_size=(1 << 31) - 1,
    buffer_size=(1 << 31) - 1,
    offset_alignment=16,
    parallel_threads=1,
)

TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in (WEBGPU, WASM)})
