import assert from "node:assert/strict";
import test from "node:test";
import { readMessages, readOptions, readPrompt } from "../../web/options.js";

const read = (options, defaults = {}) => readOptions(options, ["prompt", "top_logprobs"], defaults);

test("defaults are OpenAI's, or the model's own", () => {
  const request = read({ prompt: "x" });
  assert.deepEqual({ ...request.sampling, seed: 0 }, { temperature: 1, topK: 0, topP: 1, seed: 0 });
  assert.equal(request.maxTokens, Number.MAX_SAFE_INTEGER);
  assert.equal(request.logprobs, null);
  assert.deepEqual(read({}, { temperature: 0.2, top_p: 0.9, top_k: 40 }).sampling.topK, 40);
  assert.equal(read({ temperature: 0.5 }, { temperature: 0.2 }).sampling.temperature, 0.5);
});

test("null is as good as nothing, and harmless OpenAI options pass", () => {
  read({ model: "any", user: "me", n: 1, stop: null, temperature: null, presence_penalty: 0, tools: undefined });
});

for (const [options, message] of [
  [{ temperature: -1 }, "temperature must be a number from 0 to 100, but is -1."],
  [{ temperature: NaN }, "temperature must be a number from 0 to 100, but is NaN."],
  [{ temperature: "hot" }, 'temperature must be a number from 0 to 100, but is "hot".'],
  [{ top_p: 1.5 }, "top_p must be a number from 0 to 1, but is 1.5."],
  [{ top_p: 0 }, "top_p must be above 0: use temperature 0 for greedy answers."],
  [{ top_k: 2.5 }, "top_k must be a whole number of at least 0, but is 2.5."],
  [{ seed: -3 }, "seed must be a whole number of at least 0, but is -3."],
  [{ max_tokens: 0 }, "max_tokens must be a whole number of at least 1, but is 0."],
  [{ stop: [""] }, /^stop must be a string or a list of strings, none of them empty/],
  [{ stop: "\uD83C" }, /half a surrogate pair/],
  [{ seed: 2 ** 53 }, "seed must be a whole number of at least 0, but is 9007199254740992."],
  [{ logprobs: 5000 }, "logprobs must be a whole number from 0 to 1000, but is 5000."],
  [{ stream: 1 }, "stream must be true or false, but is 1."],
  [{ signal: {} }, "signal must be an AbortSignal."],
  [{ n: 2 }, "n must be 1: other values are not supported."],
  [{ max_token: 5 }, /^The option "max_token" is not supported: supported are prompt, .*max_tokens/],
]) {
  test(`refused: ${message}`, () => {
    assert.throws(() => read(options), { name: "WebrelaxError", code: "options", message });
  });
}

test("logprobs as in both of OpenAI's endpoints", () => {
  assert.equal(read({ logprobs: 5 }).logprobs, 5);
  assert.equal(read({ logprobs: true, top_logprobs: 3 }).logprobs, 3);
  assert.equal(read({ logprobs: true }).logprobs, 0);
  assert.equal(read({ logprobs: false }).logprobs, null);
});

test("messages are checked and flattened", () => {
  assert.deepEqual(
    readMessages([
      {
        role: "user",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
    ]),
    [{ role: "user", content: "ab" }],
  );
  assert.throws(() => readMessages([]), /at least one message/);
  assert.throws(() => readMessages([{ role: "tool", content: "" }]), {
    message: 'messages[0].role must be one of system, user, assistant, but is "tool".',
  });
  assert.throws(
    () => readMessages([{ role: "user", content: [{ type: "image_url" }] }]),
    /images and audio are not supported/,
  );
});

test("prompts are text or token ids in range", () => {
  assert.equal(readPrompt("x", 10), "x");
  assert.deepEqual(readPrompt([0, 9], 10), [0, 9]);
  assert.throws(() => readPrompt([10], 10), { message: "prompt must be a string or a list of token ids from 0 to 9." });
  // The holes of a list count too.
  for (const prompt of [undefined, [-1], [1.5], [NaN], ["1"], [2 ** 32], [, 1], ["a", "b"]]) {
    assert.throws(() => readPrompt(prompt, 10), { code: "options" }, String(prompt));
  }
  const mine = [1, 2];
  const read = readPrompt(mine, 10);
  mine[0] = 99;
  assert.deepEqual(read, [1, 2]);
});
