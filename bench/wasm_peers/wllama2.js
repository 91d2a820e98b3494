/** @wllama/wllama 2: llama.cpp as 32-bit WebAssembly. Its own loop, over token ids instead of text. */

/** See measure.js. */
export async function load({ packages, model, threads, context }) {
  const folder = `${packages}wllama2/esm/`;
  const { Wllama, LoggerWithoutDebug } = await import(`${folder}index.js`);
  const wllama = new Wllama(
    {
      "single-thread/wllama.wasm": `${folder}single-thread/wllama.wasm`,
      "multi-thread/wllama.wasm": `${folder}multi-thread/wllama.wasm`,
    },
    { suppressNativeLog: true, logger: LoggerWithoutDebug },
  );
  await wllama.loadModelFromUrl(model, { n_ctx: context, n_batch: 512, n_threads: threads });
  if (wllama.getNumThreads() !== threads) throw new Error(`it runs with ${wllama.getNumThreads()} threads`);
  return async ({ ids }, tokens, onToken) => {
    await wllama.samplingInit({ temp: 0, top_k: 1 });
    await wllama.kvClear();
    await wllama.samplingAccept(ids);
    await wllama.decode(ids, {});
    for (let made = 1; ; made++) {
      const { token } = await wllama.samplingSample();
      onToken(token);
      if (made === tokens) return;
      await wllama.samplingAccept([token]);
      await wllama.decode([token], {});
    }
  };
}
