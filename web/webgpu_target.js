/** The target "webgpu": kernels of WGSL, weights in the GPU's buffers. */
import { openDevice } from "./device.js";
import { GPUBackend } from "./gpu_backend.js";
import { Pipelines } from "./pipelines.js";
import { createBuffers, uploadWeights } from "./weights.js";

/**
 * @param {{profile: string | null}} options
 * @returns {import("./load.js").Driver<import("./device.js").Device>}
 */
export function webgpuDriver({ profile }) {
  return {
    open: (manifest) => openDevice(manifest, { profile }),
    async prepare(device, manifest, loader, { signal, onCompiled }) {
      const buffers = await createBuffers(device, manifest);
      const compile = async () => {
        const { kernels } = await loader.json(manifest.profiles[device.profile].kernels);
        return Pipelines.compile(device, kernels, { usedBytes: manifest.table.used_bytes, signal, onCompiled });
      };
      const [pipelines] = await Promise.all([compile(), uploadWeights(device, manifest, buffers, loader)]);
      return new GPUBackend(device, manifest, buffers, pipelines);
    },
  };
}
