import assert from "node:assert/strict";
import test from "node:test";
import { Loader } from "../../web/loader.js";
import { FORMAT } from "../../web/manifest.js";
import { bytesOf, entryOf, fakeCaches, fakeFetch } from "./support.js";

const BASE = new URL("http://host/models/m/");
const CONTENT = "the content of a shard";

function manifest(files, format = FORMAT) {
  const functions = { prefill: {}, decode: {} };
  const webgpu = { profiles: {}, buffers: [], binding_sets: [], table: {}, functions, memory: {} };
  return JSON.stringify({ format, model: {}, weights: {}, targets: { webgpu }, files });
}

/** A loader that has read its manifest, over a server where shard.bin is `served`. */
async function make(served = bytesOf(CONTENT), { caches = fakeCaches(), signal } = {}) {
  const files = {
    "/models/m/manifest.json": manifest({ "shard.bin": entryOf(CONTENT) }),
    "/models/m/shard.bin": served,
  };
  const server = fakeFetch(files);
  const loader = new Loader(BASE, { caches, fetch: server.fetch, signal });
  await loader.manifest();
  const events = [];
  loader.onBytes = (bytes, cached) => events.push([bytes, cached]);
  return { loader, events, caches, requests: server.requests };
}
const text = (bytes) => new TextDecoder().decode(bytes);

test("a file is downloaded once and then comes from the cache", async () => {
  const { loader, events, caches } = await make();
  assert.equal(text(await loader.file("shard.bin")), CONTENT);
  assert.equal(text(await loader.file("shard.bin")), CONTENT);
  assert.deepEqual(events, [
    [CONTENT.length, false],
    [CONTENT.length, true],
  ]);
  const again = await make(undefined, { caches });
  assert.equal(text(await again.loader.file("shard.bin")), CONTENT);
  assert.deepEqual(again.requests, ["/models/m/manifest.json"]);
});

test("a damaged cache entry heals", async () => {
  for (const damage of ["the c0ntent of a shard", "the content", ""]) {
    const { loader, caches, events } = await make();
    await loader.file("shard.bin");
    const [key] = caches.entries.keys();
    caches.entries.set(key, new Response(damage));
    assert.equal(text(await loader.file("shard.bin")), CONTENT);
    assert.equal(text(await loader.file("shard.bin")), CONTENT);
    assert.deepEqual(
      events.map(([, cached]) => cached),
      [false, false, true],
    );
  }
});

test("a cache that fails costs a download, not an answer", async () => {
  const broken = async () => Promise.reject(new DOMException("denied", "SecurityError"));
  for (const caches of [
    { open: broken },
    undefined,
    { open: async () => ({ match: broken, put: broken, delete: broken }) },
  ]) {
    const { loader } = await make(undefined, { caches });
    assert.equal(text(await loader.file("shard.bin")), CONTENT);
  }
});

for (const [what, served, code, message] of [
  ["a flipped bit", bytesOf(CONTENT.replace("o", "p")), "damaged-file", /shard\.bin is damaged: its SHA-256/],
  ["too short", bytesOf("short"), "damaged-file", /it has 5 bytes where manifest\.json says 22/],
  ["too long", bytesOf(`${CONTENT}!`), "damaged-file", /it has more than 22 bytes/],
  ["empty", bytesOf(""), "damaged-file", /it has 0 bytes/],
  ["missing", undefined, "missing-file", /shard\.bin is missing on the server \(HTTP 404\)/],
  ["a server error", () => new Response("", { status: 503 }), "network", /HTTP 503/],
  [
    "no network",
    () => Promise.reject(new TypeError("Failed to fetch")),
    "network",
    /could not be fetched \(Failed to fetch\)/,
  ],
]) {
  test(`a file that is ${what} is a clear error and is not kept`, async () => {
    const { loader, caches } = await make(served === undefined ? null : served);
    if (served === undefined) loader.fetch = fakeFetch({}).fetch;
    await assert.rejects(loader.file("shard.bin"), { name: "WebrelaxError", code, message });
    assert.equal(caches.entries.size, 0);
  });
}

test("a download that breaks off names how far it came", async () => {
  const broken = () =>
    new Response(
      new ReadableStream({
        pull(controller) {
          if (this.sent) controller.error(new TypeError("network error"));
          else controller.enqueue(bytesOf("the"));
          this.sent = true;
        },
      }),
    );
  const { loader } = await make(broken);
  await assert.rejects(loader.file("shard.bin"), { code: "network", message: /stopped after 3 of 22 bytes/ });
});

test("an aborted load says so, also where the file is stored", async () => {
  const controller = new AbortController();
  const { loader } = await make(undefined, { signal: controller.signal });
  await loader.file("shard.bin");
  controller.abort();
  await assert.rejects(loader.file("shard.bin"), { code: "aborted" });
});

test("manifests of another format, or none, are refused", async () => {
  for (const [body, message] of [
    [manifest({}, 99), /has bundle format 99 but this page reads format 3/],
    ["<html>", /is not JSON/],
    ["[]", /not a webrelax manifest/],
    ["null", /not a webrelax manifest/],
    [JSON.stringify({ format: FORMAT }), /lacks its "model" section/],
  ]) {
    const { fetch } = fakeFetch({ "/models/m/manifest.json": body });
    await assert.rejects(new Loader(BASE, { fetch }).manifest(), { code: "format", message });
  }
  await assert.rejects(new Loader(BASE, { fetch: fakeFetch({}).fetch }).manifest(), { code: "missing-file" });
});
