/** @wllama/wllama 3: llama.cpp's server as 64-bit WebAssembly, on the CPU. */

/** See measure.js. */
export async function load({ packages, model, threads, context }) {
  const folder = `${packages}wllama3/esm/`;
  const { Wllama, LoggerWithoutDebug } = await import(`${folder}index.js`);
  const options = { suppressNativeLog: true, logger: LoggerWithoutDebug };
  const wllama = new Wllama({ default: `${folder}wasm/wllama.wasm` }, options);
  const size = { n_ctx: context, n_batch: 512, n_ubatch: 512, n_parallel: 1 };
  await wllama.loadModelFromUrl(model, { ...size, n_threads: threads, n_gpu_layers: 0 });
  if (wllama.getNumThreads() !== threads) throw new Error(`it runs with ${wllama.getNumThreads()} threads`);
  // It takes no token ids.
  return async ({ text, ids }, tokens, onToken) => {
    const greedy = { temperature: 0, top_k: 1, ignore_eos: true, cache_prompt: false };
    const options = { prompt: text, max_tokens: tokens, ...greedy, stream: true };
    for await (const { choices, usage } of await wllama.createCompletion(options)) {
      if (choices[0]?.finish_reason === null) onToken(null);
      if (usage && usage.prompt_tokens !== ids.length) throw new Error(`it read ${usage.prompt_tokens} tokens`);
      if (usage && usage.completion_tokens !== tokens) throw new Error(`it made ${usage.completion_tokens} tokens`);
    }
  };
}
