/** onnxruntime-web on the CPU: a greedy loop over a decoder that onnxruntime_genai's builder has exported. */

const CACHE = /^past_key_values\.\d+\.(key|value)$/;

/** See measure.js. `model` is the address of a folder. */
export async function load({ packages, model, threads }) {
  const folder = `${packages}onnxruntime-web/dist/`;
  const ort = await import(`${folder}ort.wasm.min.mjs`);
  Object.assign(ort.env.wasm, { numThreads: threads, wasmPaths: folder });
  ort.env.logLevel = "error";
  const bytes = async (name) => new Uint8Array(await (await fetch(model + name)).arrayBuffer());
  const [graph, data] = await Promise.all(["model.onnx", "model.onnx.data"].map(bytes));
  const { decoder } = (await (await fetch(`${model}genai_config.json`)).json()).model;
  const session = await ort.InferenceSession.create(graph, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: "all",
    externalData: [{ path: "model.onnx.data", data }],
  });
  const caches = session.inputNames.filter((name) => CACHE.test(name));
  const shape = [1, decoder.num_key_value_heads, 0, decoder.head_size];
  const integers = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);

  /** The token after `ids`, of which the first is number `at`, and the caches with them. */
  const step = async (ids, at, past) => {
    const end = at + ids.length;
    const inputs = { input_ids: integers(ids), attention_mask: integers(Array(end).fill(1)), ...past };
    if (session.inputNames.includes("position_ids")) inputs.position_ids = integers(ids.map((_, i) => at + i));
    const outputs = await session.run(inputs);
    const present = caches.map((name) => [name, outputs[name.replace("past_key_values", "present")]]);
    const { data, dims } = outputs.logits;
    return { token: largest(data.subarray(data.length - dims.at(-1))), past: Object.fromEntries(present) };
  };
  return async ({ ids }, tokens, onToken) => {
    const empty = caches.map((name) => [name, new ort.Tensor("float32", new Float32Array(0), shape)]);
    let { token, past } = await step(ids, 0, Object.fromEntries(empty));
    onToken(token);
    for (let made = 1; made < tokens; made++) {
      ({ token, past } = await step([token], ids.length + made - 1, past));
      onToken(token);
    }
  };
}

function largest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
