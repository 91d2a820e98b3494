/** The engine over a model that is a JavaScript function: what it says depends on all tokens in the cache. */
import assert from "node:assert/strict";
import test from "node:test";
import { Engine } from "../../web/engine.js";
import { Tokenizer } from "../../web/tokenizer.js";
import { byteTokenizer, bytesOf } from "./support.js";

const CONTEXT = 64;
const CHUNK = 8;
const END = 257;
const TEMPLATE = "{% for m in messages %}<|start|>{{ m.role[0] }}{{ m.content }}<|end|>{% endfor %}<|start|>a";

/** Logits peak at `say(tokens so far)`; a wrong position or a stale cache entry throws. */
class FakeExecutor {
  cache = [];
  calls = [];
  say = (tokens) => 97 + (tokens.reduce((a, b) => a + b, 0) % 26);
  beforeRun = async () => {};

  async run(name, { n, m }, { tokens, positions, sequences }, result = null) {
    await this.beforeRun();
    this.calls.push([name, n, m]);
    assert.ok(n === tokens.length && n <= CHUNK && m + n <= CONTEXT && m <= this.cache.length);
    assert.deepEqual(
      [...positions],
      Array.from(tokens, (_, i) => m + i),
    );
    assert.ok(sequences.every((s) => s === 0));
    this.cache.splice(m, Infinity, ...tokens);
    if (result === null) return null;
    const logits = Float32Array.from({ length: 258 }, (_, id) => -id / 100);
    logits[this.say(this.cache)] = 10;
    return logits;
  }
  async idle() {}
  countDispatches = (name) => (name === "decode" ? 30 : 40);
}

function make(vocab = 258) {
  const executor = new FakeExecutor();
  const { json, config } = byteTokenizer(["<|start|>", "<|end|>"], TEMPLATE);
  const device = { profile: "f32", info: { vendor: "test" }, failed: new Promise(() => {}), check() {}, destroy() {} };
  const manifest = {
    name: "m",
    model: { architecture: "llama", context: CONTEXT, prefill_chunk: CHUNK, vocab },
    profiles: { f32: { features: [] } },
    buffers: [
      { kind: "state", size: 8 },
      { kind: "weight", size: 4 },
      { kind: "weight", size: 6 },
    ],
    memory: { unplanned: 99 },
  };
  const engine = new Engine(
    device,
    manifest,
    { executor, tokenizer: new Tokenizer(json, config), generation: { temperature: 0 } },
    {},
  );
  return { engine, executor };
}
const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
/** What the model says after these tokens, by itself. */
function reference(executor, prompt, count) {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(executor.say(tokens));
  return tokens.slice(prompt.length);
}

test("a completion has OpenAI's shape", async () => {
  const { engine, executor } = make();
  const answer = await engine.completions.create({ prompt: "Hello", max_tokens: 4 });
  assert.match(answer.id, /^cmpl-/);
  assert.equal(answer.object, "text_completion");
  assert.equal(answer.model, "m");
  const [choice] = answer.choices;
  const expected = reference(executor, bytesOf("Hello"), 4);
  assert.deepEqual(choice, {
    index: 0,
    text: String.fromCharCode(...expected),
    finish_reason: "length",
    logprobs: null,
    token_ids: expected,
    prompt_token_ids: [...bytesOf("Hello")],
  });
  const { extra, ...usage } = answer.usage;
  assert.deepEqual(usage, {
    prompt_tokens: 5,
    completion_tokens: 4,
    total_tokens: 9,
    prompt_tokens_details: { cached_tokens: 0 },
  });
  assert.deepEqual(Object.keys(extra), [
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    "time_to_first_token_s",
    "seed",
  ]);
});

test("info tells what runs", () => {
  const { info } = make().engine;
  assert.deepEqual(info.memory, { unplanned: 99, state: 8, weight: 10, total: 18 });
  assert.deepEqual(info.dispatches, { decode: 30, prefill: 40 });
  assert.equal(info.profile, "f32");
  assert.equal(info.context, CONTEXT);
});

test("streams add up to the whole answer, and may be awaited first", async () => {
  const { engine } = make();
  const whole = await engine.completions.create({ prompt: "Hello", max_tokens: 6 });
  for (const stream of [
    engine.completions.create({ prompt: "Hello", max_tokens: 6, stream: true }),
    await engine.completions.create({ prompt: "Hello", max_tokens: 6, stream: true }),
  ]) {
    const chunks = await collect(stream);
    assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
    assert.deepEqual(
      chunks.flatMap((chunk) => chunk.choices[0].token_ids),
      whole.choices[0].token_ids,
    );
    assert.equal(chunks.at(-1).choices[0].finish_reason, "length");
    assert.equal(chunks.at(-1).usage.completion_tokens, 6);
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
  }
});

test("a chat ends at the end token, which is no text", async () => {
  const { engine, executor } = make();
  executor.say = (tokens) => (tokens.length < 12 ? 120 : END);
  const options = { messages: [{ role: "user", content: "Hi" }] };
  const answer = await engine.chat.completions.create(options);
  assert.equal(answer.object, "chat.completion");
  assert.deepEqual(answer.choices[0].message, { role: "assistant", content: "xxxxx" });
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.deepEqual(answer.choices[0].token_ids, [120, 120, 120, 120, 120]);
  assert.equal(answer.usage.completion_tokens, 5);
  const chunks = await collect(engine.chat.completions.create({ ...options, stream: true }));
  assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "x" });
  assert.equal(chunks[0].object, "chat.completion.chunk");
  assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
  const longer = await engine.chat.completions.create({ ...options, ignore_eos: true, max_tokens: 10 });
  assert.equal(longer.choices[0].finish_reason, "length");
});

for (const length of [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 1, CONTEXT - 1, CONTEXT]) {
  test(`a prompt of ${length} tokens is given in chunks`, async () => {
    const { engine, executor } = make();
    const prompt = Array.from({ length }, (_, i) => 97 + (i % 26));
    const answer = await engine.completions.create({ prompt, max_tokens: 1 });
    assert.deepEqual(answer.choices[0].token_ids, reference(executor, prompt, 1));
    assert.equal(
      executor.calls.reduce((sum, [, n]) => sum + n, 0),
      length,
    );
    assert.equal(executor.calls.length, Math.ceil(length / CHUNK));
    assert.ok(executor.calls.every(([name, n]) => name === (n === 1 ? "decode" : "prefill")));
  });
}

test("a prompt past the context is refused with both numbers; an answer stops at the bound", async () => {
  const { engine } = make();
  const prompt = (length) => new Array(length).fill(97);
  await assert.rejects(engine.completions.create({ prompt: prompt(CONTEXT + 1) }), {
    code: "context",
    message: /has 65 tokens but the model's context holds 64/,
  });
  const answer = await engine.completions.create({ prompt: prompt(CONTEXT - 2) });
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.total_tokens, CONTEXT + 1);
  await assert.rejects(engine.completions.create({ prompt: "" }), { code: "options", message: /prompt is empty/ });
});

test("a second turn continues from the cache, with the same words as from nothing", async () => {
  const { engine, executor } = make();
  const messages = [{ role: "user", content: "One" }];
  const first = await engine.chat.completions.create({ messages, max_tokens: 5 });
  messages.push(first.choices[0].message, { role: "user", content: "Two" });
  executor.calls.length = 0;
  const second = await engine.chat.completions.create({ messages, max_tokens: 5 });
  assert.equal(second.usage.prompt_tokens_details.cached_tokens, first.usage.total_tokens - 1);
  assert.equal(executor.calls[0][2], first.usage.total_tokens - 1);
  const fresh = await make().engine.chat.completions.create({ messages, max_tokens: 5 });
  assert.deepEqual(second.choices[0].token_ids, fresh.choices[0].token_ids);
  engine.reset();
  assert.equal(
    (await engine.chat.completions.create({ messages, max_tokens: 1 })).usage.prompt_tokens_details.cached_tokens,
    0,
  );
});

test("an edited conversation keeps only what is equal; the same prompt computes its last token again", async () => {
  const { engine, executor } = make();
  const ask = (prompt) => engine.completions.create({ prompt, max_tokens: 3 });
  await ask("abcdef");
  const edited = await ask("abcXef");
  assert.equal(edited.usage.prompt_tokens_details.cached_tokens, 3);
  assert.deepEqual(edited.choices[0].token_ids, reference(executor, bytesOf("abcXef"), 3));
  const again = await ask("abcXef");
  assert.equal(again.usage.prompt_tokens_details.cached_tokens, 5);
  assert.deepEqual(again.choices[0].token_ids, edited.choices[0].token_ids);
  assert.deepEqual((await ask("ab")).choices[0].token_ids, reference(executor, bytesOf("ab"), 3));
});

test("leaving the loop, return() and the signal stop within one token, and the engine goes on", async () => {
  const { engine, executor } = make();
  const start = (signal) => engine.completions.create({ prompt: "Hello", stream: true, signal });
  for await (const chunk of start()) if (chunk) break;
  assert.equal(executor.calls.length, 1);

  const stream = start();
  await stream.next();
  const pending = stream.next();
  await stream.return();
  assert.ok((await pending).value === undefined || !(await pending).done);
  assert.deepEqual(await stream.next(), { done: true, value: undefined });

  const controller = new AbortController();
  const aborted = start(controller.signal);
  await aborted.next();
  const before = executor.calls.length;
  controller.abort();
  await assert.rejects(collect(aborted), { code: "aborted" });
  assert.ok(executor.calls.length <= before + 1);
  await assert.rejects(engine.completions.create({ prompt: "x", signal: AbortSignal.abort() }), { code: "aborted" });

  const answer = await engine.completions.create({ prompt: "Hello", max_tokens: 3 });
  assert.deepEqual(answer.choices[0].token_ids, reference(executor, bytesOf("Hello"), 3));
});

test("return() during a long prefill stops between chunks", async () => {
  const { engine, executor } = make();
  executor.beforeRun = () => new Promise((resolve) => setTimeout(resolve, 5));
  const stream = engine.completions.create({ prompt: new Array(60).fill(97), stream: true });
  const pending = stream.next();
  await new Promise((resolve) => setTimeout(resolve, 8));
  await stream.return();
  assert.deepEqual(await pending, { done: true, value: undefined });
  assert.ok(executor.calls.length <= 3, `${executor.calls.length} chunks`);
  assert.equal((await engine.completions.create({ prompt: "x", max_tokens: 1 })).usage.completion_tokens, 1);
});

test("what a failed or stopped step left half done is done again; what was done before is kept", async () => {
  const prompt = Array.from({ length: 3 * CHUNK }, (_, i) => 97 + i);
  for (const failing of [0, 1, 2, 3, 5]) {
    const { engine, executor } = make();
    let calls = 0;
    executor.beforeRun = async () => {
      if (calls++ !== failing) return;
      // Half written: whatever stands there from the step's first position on is not to be read.
      executor.cache.splice(executor.cache.length, Infinity, 120, 120);
      throw new Error("injected");
    };
    await assert.rejects(engine.completions.create({ prompt, max_tokens: 6 }), /injected/);
    const answer = await engine.completions.create({ prompt, max_tokens: 6 });
    assert.deepEqual(answer.choices[0].token_ids, reference(executor, prompt, 6));
    const kept = Math.min(failing * CHUNK, prompt.length - 1);
    assert.equal(answer.usage.prompt_tokens_details.cached_tokens, kept);
  }
  const { engine, executor } = make();
  const controller = new AbortController();
  executor.idle = async () => controller.abort();
  await assert.rejects(engine.completions.create({ prompt, signal: controller.signal }), { code: "aborted" });
  executor.idle = async () => {};
  const answer = await engine.completions.create({ prompt, max_tokens: 3 });
  assert.equal(answer.usage.prompt_tokens_details.cached_tokens, CHUNK);
  assert.deepEqual(answer.choices[0].token_ids, reference(executor, prompt, 3));
});

test("a token that the tokenizer has and the model has not is refused before it runs", async () => {
  const { engine, executor } = make(END);
  await assert.rejects(engine.completions.create({ prompt: "a<|end|>" }), {
    code: "format",
    message: /token 257, which the model's vocabulary of 257 has not/,
  });
  assert.deepEqual(executor.calls, []);
});

test("the caller's list of tokens may change while it is answered", async () => {
  const { engine, executor } = make();
  const prompt = [97, 98, 99];
  const stream = engine.completions.create({ prompt, max_tokens: 3, stream: true });
  prompt.push(100);
  const ids = (await collect(stream)).flatMap((chunk) => chunk.choices[0].token_ids);
  assert.deepEqual(ids, reference(executor, [97, 98, 99], 3));
});

test("one request at a time", async () => {
  const { engine } = make();
  const first = engine.completions.create({ prompt: "Hello", max_tokens: 3 });
  await assert.rejects(engine.completions.create({ prompt: "Hi" }), { code: "busy" });
  assert.throws(() => engine.reset(), { code: "busy" });
  await first;
  engine.reset();
});

test("a failure of the device reaches the request; a disposed engine says so", async () => {
  const { engine, executor } = make();
  executor.beforeRun = async () => {
    throw new Error("lost");
  };
  await assert.rejects(engine.completions.create({ prompt: "Hello" }), /lost/);
  executor.beforeRun = async () => {};
  await engine.completions.create({ prompt: "Hello", max_tokens: 1 });
  engine.dispose();
  await assert.rejects(engine.completions.create({ prompt: "Hello" }), { code: "disposed" });
});

test("stop strings end the answer", async () => {
  const { engine, executor } = make();
  const text = "one two three four five";
  executor.say = (tokens) => text.charCodeAt(tokens.length - 1);
  const answer = await engine.completions.create({ prompt: "x", stop: ["ee f"] });
  assert.equal(answer.choices[0].text, "one two thr");
  assert.equal(answer.choices[0].finish_reason, "stop");
  const held = await engine.completions.create({ prompt: "x", stop: "five!", max_tokens: text.length });
  assert.equal(held.choices[0].text, text);
  const chunks = await collect(
    engine.completions.create({ prompt: "x", stop: "five!", max_tokens: text.length, stream: true }),
  );
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), text);
});

test("logprobs and raw logits", async () => {
  const { engine, executor } = make();
  const answer = await engine.completions.create({ prompt: "Hello", max_tokens: 2, logprobs: 3 });
  const { logprobs, token_ids } = answer.choices[0];
  assert.deepEqual(token_ids, reference(executor, bytesOf("Hello"), 2));
  assert.equal(logprobs.tokens.length, 2);
  assert.equal(logprobs.top_logits.length, 3);
  assert.deepEqual(logprobs.top_logits[0], [token_ids[0], 10]);
  assert.ok(Math.abs(Object.values(logprobs.top_logprobs[0])[0] - logprobs.token_logprobs[0]) < 1e-9);
  const chat = await engine.chat.completions.create({
    messages: [{ role: "user", content: "Hi" }],
    max_tokens: 2,
    logprobs: true,
    top_logprobs: 2,
  });
  assert.equal(chat.choices[0].logprobs.content.length, 2);
  assert.equal(chat.choices[0].logprobs.content[0].top_logprobs.length, 2);
});

test("mistakes in the options are told by both kinds of request", async () => {
  const { engine } = make();
  await assert.rejects(engine.completions.create({ prompt: "x", temperature: -1 }), { code: "options" });
  assert.throws(() => engine.completions.create({ prompt: "x", temperature: -1, stream: true }), { code: "options" });
  await assert.rejects(engine.chat.completions.create({ messages: [{ role: "robot", content: "" }] }), {
    code: "options",
  });
  await assert.rejects(engine.completions.create(), { code: "options" });
});

test("an answer that ends at once still tells its logits", async () => {
  const { engine, executor } = make();
  executor.say = () => END;
  const { choices, usage } = await engine.completions.create({ prompt: "Hello", logprobs: 2 });
  assert.equal(choices[0].text, "");
  assert.equal(choices[0].finish_reason, "stop");
  assert.deepEqual(choices[0].token_ids, []);
  assert.deepEqual(choices[0].logprobs.tokens, ["<|end|>"]);
  assert.deepEqual(choices[0].logprobs.top_logits[0], [END, 10]);
  assert.equal(usage.completion_tokens, 0);
});
