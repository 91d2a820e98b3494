/** The buffers of a bundle on the GPU, and weights streamed to where they belong, shard by shard. */
import { formatBytes } from "./errors.js";

/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Part} Part
 * @typedef {import("./device.js").Device} Device
 * @typedef {{file(name: string): Promise<Uint8Array<ArrayBuffer>>}} Files
 */

/**
 * Allocates every buffer of the manifest, zero-filled; the index is the buffer's id.
 * @param {Device} device
 * @param {Manifest} manifest
 * @returns {Promise<GPUBuffer[]>}
 */
export function createBuffers(device, manifest) {
  const total = manifest.buffers.reduce((sum, buffer) => sum + buffer.size, 0);
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  return device.guarded(`${manifest.name} (${formatBytes(total)} of buffers)`, () =>
    manifest.buffers.map(({ name, size }) => device.gpu.createBuffer({ label: name, size, usage })),
  );
}

/**
 * Copies the weights to the GPU.
 * @param {Device} device
 * @param {Manifest} manifest
 * @param {GPUBuffer[]} buffers
 * @param {Files} files
 */
export function uploadWeights(device, manifest, buffers, files) {
  return streamWeights(manifest, files, async (bytes, parts) => {
    for (const { buffer, offset, size, at } of parts) {
      device.gpu.queue.writeBuffer(buffers[buffer], at, bytes, offset, size);
    }
    // The queue holds a copy of what it has not written yet: wait, so that copies do not pile up.
    await device.gpu.queue.onSubmittedWorkDone();
    device.check();
  });
}

/**
 * Gives each shard to `place`, with the pieces it holds, while the next one downloads: at most two are in memory.
 * @param {Manifest} manifest
 * @param {Files} files
 * @param {(bytes: Uint8Array<ArrayBuffer>, parts: (Part & {buffer: number})[]) => Promise<void>} place
 */
export async function streamWeights(manifest, files, place) {
  const plan = [...partsByShard(manifest)];
  const fetchShard = (/** @type {number} */ index) => {
    if (index >= plan.length) return null;
    const shard = files.file(plan[index][0]);
    shard.catch(() => {}); // reported where it is awaited
    return shard;
  };
  let next = fetchShard(0);
  for (const [index, [, parts]] of plan.entries()) {
    const bytes = /** @type {Uint8Array<ArrayBuffer>} */ (await next);
    next = fetchShard(index + 1);
    await place(bytes, parts);
  }
}

/**
 * @param {Manifest} manifest
 * @returns {Map<string, (Part & {buffer: number})[]>} shard -> the pieces it holds, shards in order of their names
 */
export function partsByShard(manifest) {
  /** @type {Map<string, (Part & {buffer: number})[]>} */
  const shards = new Map();
  manifest.buffers.forEach((entry, buffer) => {
    for (const part of entry.parts ?? []) {
      const parts = shards.get(part.file) ?? [];
      parts.push({ ...part, buffer });
      shards.set(part.file, parts);
    }
  });
  return new Map([...shards].sort(([a], [b]) => (a < b ? -1 : 1)));
}
