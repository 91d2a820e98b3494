"""WebGPU outside the browser, by wgpu-py: the device of the tests, `webrelax check` and `webrelax generate`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import WebrelaxError
from ..source import KernelSource
from ..target import WEBGPU

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.generic]

TABLE_ALIGNMENT = 256


@dataclass(frozen=True)
class Pipeline:
    """A compiled kernel and the layout of its bindings."""

    handle: Any
    layout: Any
    source: KernelSource


Dispatch: TypeAlias = tuple[Pipeline, Any, tuple[int, int, int], int]
"""(pipeline, bind group, grid, offset of the table's row)"""
Copy: TypeAlias = tuple[Any, int, Any, int, int]
"""(buffer, offset, buffer, offset, bytes): from the first buffer to the second"""


class Device:
    """A GPU with WebGPU's default limits. Buffers are wgpu's own objects; sizes and offsets are in bytes."""

    def __init__(self) -> None:
        wgpu = _wgpu()
        self._wgpu = wgpu
        try:
            adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
            if adapter is None:
                raise RuntimeError("no adapter")
            self.handle = adapter.request_device_sync(required_limits=_limits(adapter))
        except RuntimeError as error:
            raise WebrelaxError(
                f"no usable GPU or Vulkan driver here ({_first_line(error)}); install one, or mesa-vulkan-drivers for "
                "a software one"
            ) from error
        self.description = f"{adapter.info['device']} ({adapter.info['backend_type']})"
        self._pipelines: dict[KernelSource, Pipeline] = {}

    def buffer(self, size: int) -> Any:
        """A storage buffer of at least `size` bytes, zero at start."""
        usage = self._wgpu.BufferUsage
        flags = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        return self.handle.create_buffer(size=max(4, -(-size // 4) * 4), usage=flags)

    def table(self, size: int) -> Any:
        """A uniform buffer for the symbol table."""
        usage = self._wgpu.BufferUsage
        return self.handle.create_buffer(size=size, usage=usage.UNIFORM | usage.COPY_DST)

    def write(self, buffer: Any, data: Array, offset: int = 0) -> None:
        """Copies an array into a buffer. Its bytes and the offset are multiples of 4."""
        if data.nbytes:
            self.handle.queue.write_buffer(buffer, offset, data)

    def read(self, buffer: Any, size: int, offset: int = 0) -> bytes:
        """Bytes of a buffer, once all that was submitted is done."""
        if size == 0:
            return b""
        return bytes(self.handle.queue.read_buffer(buffer, offset, -(-size // 4) * 4))[:size]

    def pipeline(self, source: KernelSource) -> Pipeline:
        """The compiled kernel, compiled once. Raises WebrelaxError where the driver refuses it."""
        if source not in self._pipelines:
            self._pipelines[source] = self._compile(source)
        return self._pipelines[source]

    def _compile(self, source: KernelSource) -> Pipeline:
        stage = self._wgpu.ShaderStage.COMPUTE
        table = {"type": "uniform", "has_dynamic_offset": True}
        entries = [{"binding": 0, "visibility": stage, "buffer": table}]
        for at, access in enumerate(source.access, 1):
            kind = "storage" if access == "read_write" else "read-only-storage"
            entries.append({"binding": at, "visibility": stage, "buffer": {"type": kind}})
        try:
            layout = self.handle.create_bind_group_layout(entries=entries)
            module = self.handle.create_shader_module(code=source.text, label=source.name)
            handle = self.handle.create_compute_pipeline(
                layout=self.handle.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": source.entry},
            )
        except self._wgpu.GPUError as error:
            raise WebrelaxError(f"kernel {source.name} does not compile: {error}") from error
        return Pipeline(handle, layout, source)

    def bind(self, pipeline: Pipeline, table: Any, table_bytes: int, bindings: Sequence[tuple[Any, int, int]]) -> Any:
        """A bind group: the symbol table (`table_bytes` of a row), then (buffer, offset, size) for each binding."""
        resources = [(table, 0, table_bytes), *bindings]
        entries = [
            {"binding": at, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for at, (buffer, offset, size) in enumerate(resources)
        ]
        return self.handle.create_bind_group(layout=pipeline.layout, entries=entries)

    def submit(self, work: Sequence[Dispatch | Copy]) -> None:
        """Runs dispatches and copies in order; empty grids are skipped."""
        encoder = self.handle.create_command_encoder()
        compute = None
        for step in work:
            if len(step) == 5:
                if compute is not None:
                    compute.end()
                    compute = None
                encoder.copy_buffer_to_buffer(*step)
                continue
            pipeline, group, grid, row = step
            if all(grid):
                compute = compute or encoder.begin_compute_pass()
                compute.set_pipeline(pipeline.handle)
                compute.set_bind_group(0, group, [row])
                compute.dispatch_workgroups(*grid)
        if compute is not None:
            compute.end()
        self.handle.queue.submit([encoder.finish()])


def run_kernel(
    source: KernelSource,
    grid: Sequence[int],
    arrays: Sequence[Array],
    table: Sequence[int] = (),
    device: Any = None,
) -> list[Array]:
    """Runs a kernel once on copies of the arrays, one for each binding, and returns them as they are afterwards.

    `table` are the values of the symbol table's slots, from slot 0 on; `device` has the interface of `Device`.
    """
    import numpy as np

    device = device or default_device()
    pipeline = device.pipeline(source)
    words = np.zeros(TABLE_ALIGNMENT // 4, np.int32)
    words[: len(table)] = table
    row = device.table(TABLE_ALIGNMENT)
    device.write(row, words)
    buffers = []
    for array in arrays:
        buffer = device.buffer(array.nbytes)
        device.write(buffer, np.ascontiguousarray(array))
        buffers.append((buffer, 0, buffer.size))
    group = device.bind(pipeline, row, TABLE_ALIGNMENT, buffers)
    x, y, z = grid
    device.submit([(pipeline, group, (x, y, z), 0)])
    results: list[Array] = []
    for array, (buffer, _, _), access in zip(arrays, buffers, source.access, strict=True):
        if access == "read":
            results.append(array)
        else:
            results.append(np.frombuffer(device.read(buffer, array.nbytes), array.dtype).reshape(array.shape))
    return results


@lru_cache(1)
def default_device() -> Device:
    """The device that tests and tools share."""
    return Device()


def _wgpu() -> Any:
    # Without a desktop session the Vulkan loader complains on stderr that it has no such folder; it needs none here.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        import wgpu
    except ImportError as error:
        raise WebrelaxError("wgpu is not installed; `pip install webrelax[native]` brings it") from error
    return wgpu


def _limits(adapter: Any) -> Mapping[str, int]:
    """The default limits, named as wgpu-py wants them, so that a kernel above them fails here too."""
    x, y, z = WEBGPU.workgroup_size
    return {
        "max-storage-buffers-per-shader-stage": WEBGPU.storage_buffers,
        "max-compute-workgroup-storage-size": WEBGPU.workgroup_memory,
        "max-compute-invocations-per-workgroup": WEBGPU.workgroup_invocations,
        "max-compute-workgroup-size-x": x,
        "max-compute-workgroup-size-y": y,
        "max-compute-workgroup-size-z": z,
        "max-compute-workgroups-per-dimension": WEBGPU.grid,
        "max-storage-buffer-binding-size": WEBGPU.binding_size,
        "max-buffer-size": WEBGPU.buffer_size,
        "min-storage-buffer-offset-alignment": WEBGPU.offset_alignment,
        "min-uniform-buffer-offset-alignment": WEBGPU.offset_alignment,
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
