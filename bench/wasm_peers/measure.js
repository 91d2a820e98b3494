/**
 * Runs in every page before anything else: loads one engine and times its answers.
 *
 * An engine is a module beside this one, which exports
 *     load(options) -> Promise<answer>
 *     answer({ids, text}, tokens, onToken) -> Promise<void>
 * `answer` computes the whole prompt anew, continues it greedily by exactly `tokens` tokens, end tokens or not, and calls
 * onToken(id) as each is there; id is null where the engine tells no ids. `answer.about`, if there is one, is shown beside
 * the engine's name.
 */
globalThis.bench = (() => {
  const LIMIT_S = 600;
  let answer;

  /** @param {Promise<unknown>} work */
  const within = (work) => {
    const late = (resolve, reject) =>
      setTimeout(() => reject(new Error(`it did nothing for ${LIMIT_S} s`)), LIMIT_S * 1000);
    return Promise.race([work, new Promise(late)]);
  };

  return {
    /** `source` is the engine's module as text: the page may lie on another server. */
    async load(source, options) {
      if (!globalThis.crossOriginIsolated) throw new Error("the page is not cross-origin isolated");
      const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      const { load } = await import(url);
      answer = await within(load(options));
      return answer.about ?? "";
    },

    /** Seconds from the request to the first and to the last token, and the tokens' ids. */
    async turn(prompt, tokens) {
      const seconds = [];
      const ids = [];
      const start = performance.now();
      const onToken = (id) => {
        seconds.push((performance.now() - start) / 1000);
        ids.push(id);
      };
      await within(answer(prompt, tokens, onToken));
      return { first: seconds[0], last: seconds.at(-1), ids };
    },

    /** Loads the engine; seconds from the navigation to its first token. */
    async firstToken(source, options, prompt) {
      await globalThis.bench.load(source, options);
      let seconds = 0;
      await within(answer(prompt, 1, () => (seconds = performance.now() / 1000)));
      return seconds;
    },
  };
})();
