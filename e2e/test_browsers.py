"""The browsers themselves: that WebGPU is there, computes, and promises what the compiler counts on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from webrelax.packaging.serve import serving

from .firefox_bidi import firefox

DEFAULT_LIMITS = {
    "maxStorageBuffersPerShaderStage": 8,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 128 << 20,
    "maxBufferSize": 256 << 20,
}

# Doubles 64 numbers on the device and reads them back.
PROBE = """
(async () => {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const code = `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(64) fn main(@builtin(local_invocation_id) id: vec3u) { x[id.x] = 2 * x[id.x]; }`;
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
  const data = device.createBuffer({ size: 256, usage: 0x8c });
  const back = device.createBuffer({ size: 256, usage: 0x9 });
  device.queue.writeBuffer(data, 0, Float32Array.from({ length: 64 }, (_, i) => i));
  const layout = pipeline.getBindGroupLayout(0);
  const group = device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer: data } }] });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  pass.end();
  encoder.copyBufferToBuffer(data, 0, back, 0, 256);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(1);
  const values = [...new Float32Array(back.getMappedRange())];
  const limits = {};
  for (const name in adapter.limits) limits[name] = adapter.limits[name];
  return { isolated: crossOriginIsolated, values, limits, vendor: adapter.info.vendor };
})()
"""


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "index.html").write_text("<!doctype html><title>blank</title>")
    with serving(tmp_path) as address:
        yield address


def assert_usable(found: dict[str, Any]) -> None:
    assert found["isolated"]
    assert found["values"] == [2 * i for i in range(64)]
    assert {
        name: found["limits"][name] for name, least in DEFAULT_LIMITS.items() if found["limits"][name] < least
    } == {}


def test_chromium(page: Page, blank: str) -> None:
    page.goto(blank)
    assert_usable(page.evaluate(PROBE))


@pytest.mark.firefox
def test_firefox(blank: str) -> None:
    with firefox() as page:
        page.goto(blank)
        assert_usable(page.evaluate(PROBE))
