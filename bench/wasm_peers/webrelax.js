/** The site's own run time, on the CPU. */

/** See measure.js. `model` is the bundle's folder and `site` the site's address. */
export async function load({ site, model, threads }) {
  const { createEngine } = await import(`${site}runtime.js`);
  const engine = await createEngine({ model, target: "wasm", threads });
  if (engine.info.threads !== threads) throw new Error(`it runs with ${engine.info.threads} threads`);
  const answer = async ({ ids }, tokens, onToken) => {
    await engine.reset();
    const request = { prompt: ids, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true };
    for await (const { choices } of engine.completions.create(request)) choices[0].token_ids.forEach(onToken);
  };
  return Object.assign(answer, { about: engine.info.profile });
}
