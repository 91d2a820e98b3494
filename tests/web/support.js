/** Stand-ins for what a browser has: a device that records, a server of bytes, a cache that can be damaged. */
import { createHash } from "node:crypto";

Object.assign(globalThis, {
  GPUBufferUsage: { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 },
  GPUMapMode: { READ: 1 },
  GPUShaderStage: { COMPUTE: 4 },
});

/** Records calls as [what, ...details] in `log`; buffers have memory, kernels do nothing. */
export class FakeGPU extends EventTarget {
  log = [];
  errors = [];
  failingKernel = null;
  queue = {
    writeBuffer: (buffer, at, data, offset = 0, size = data.length - offset) => {
      const bytes = new Uint8Array(
        data.buffer,
        data.byteOffset + offset * data.BYTES_PER_ELEMENT,
        size * data.BYTES_PER_ELEMENT,
      );
      buffer.bytes.set(bytes, at);
      this.log.push(["write", buffer.label, at, [...bytes]]);
    },
    submit: (lists) => lists.flat().forEach((run) => run()),
    onSubmittedWorkDone: async () => {},
  };

  constructor() {
    super();
    this.lost = new Promise((resolve) => (this.lose = resolve));
  }

  createBuffer({ label, size, usage }) {
    const bytes = new Uint8Array(size);
    const getMappedRange = (at, length) => bytes.buffer.slice(at, at + length);
    return { label, size, usage, bytes, mapAsync: async () => {}, getMappedRange, unmap() {} };
  }

  createBindGroupLayout({ entries }) {
    this.log.push(["layout", entries.map(({ buffer }) => buffer.type).join()]);
    return { entries };
  }

  createPipelineLayout = (layout) => layout;

  createBindGroup({ entries }) {
    const bindings = entries.map(({ binding, resource }) => [
      binding,
      resource.buffer.label,
      resource.offset ?? 0,
      resource.size,
    ]);
    this.log.push(["group", ...bindings]);
    return { bindings };
  }

  createShaderModule({ label }) {
    const messages = [{ type: "error", lineNum: 3, message: "bad token" }];
    return { label, getCompilationInfo: async () => ({ messages }) };
  }

  async createComputePipelineAsync({ label }) {
    if (label === this.failingKernel) throw new Error("pipeline error");
    return { label };
  }

  createCommandEncoder() {
    const todo = [];
    let pipeline;
    let group;
    const pass = {
      setPipeline: (value) => (pipeline = value),
      setBindGroup: (_, value, offsets) => (group = [value, ...offsets]),
      dispatchWorkgroups: (...grid) =>
        this.log.push(["dispatch", pipeline.label, group[0].bindings.slice(1).map(([, name]) => name), group[1], grid]),
      end: () => this.log.push(["end"]),
    };
    return {
      beginComputePass: () => (this.log.push(["pass"]), pass),
      copyBufferToBuffer: (source, from, target, to, bytes) => {
        this.log.push(["copy", source.label, from, target.label, to, bytes]);
        todo.push(() => target.bytes.set(source.bytes.subarray(from, from + bytes), to));
      },
      finish: () => () => todo.forEach((run) => run()),
    };
  }

  pushErrorScope() {}
  async popErrorScope() {
    return this.errors.shift() ?? null;
  }
  destroy() {
    this.lose({ reason: "destroyed", message: "" });
  }
}

/** @returns a `fetch` over {path: bytes | Response maker}; `requests` lists the paths asked for */
export function fakeFetch(files) {
  const requests = [];
  const fetch = async (url, { signal } = {}) => {
    if (signal?.aborted) throw new DOMException("aborted", "AbortError");
    const path = new URL(url).pathname;
    requests.push(path);
    const file = files[path];
    if (file === undefined) return new Response("not found", { status: 404 });
    return typeof file === "function" ? file() : new Response(file);
  };
  return { fetch, requests };
}

/** Cache Storage in memory. */
export function fakeCaches() {
  const entries = new Map();
  const cache = {
    match: async (key) => entries.get(key)?.clone(),
    put: async (key, response) => void entries.set(key, response),
    delete: async (key) => entries.delete(key),
  };
  return { entries, open: async () => cache };
}

export const bytesOf = (text) => new TextEncoder().encode(text);

export function entryOf(content) {
  const bytes = typeof content === "string" ? bytesOf(content) : content;
  return { size: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
}

/** A byte-level tokenizer: ids 0..255 are the bytes, then the given special tokens. */
export function byteTokenizer(specials, template) {
  const printable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const vocab = {};
  let extra = 0;
  for (let byte = 0; byte < 256; byte++) vocab[String.fromCodePoint(printable(byte) ? byte : 256 + extra++)] = byte;
  const added = specials.map((content, index) => ({
    id: 256 + index,
    content,
    special: true,
    normalized: false,
    single_word: false,
    lstrip: false,
    rstrip: false,
  }));
  const json = {
    version: "1.0",
    added_tokens: added,
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", vocab, merges: [], unk_token: null, fuse_unk: false, byte_fallback: false },
  };
  return { json, config: { chat_template: template, eos_token: specials.at(-1) } };
}
