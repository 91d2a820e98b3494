import assert from "node:assert/strict";
import test from "node:test";
import { Detokenizer, StopMatcher } from "../../web/text.js";
import { bytesOf } from "./support.js";

const decodeBytes = (ids) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(ids));

test("a character is given whole, at its last byte", () => {
  const text = "aé漢🙂‍🔥z\n\u{10FFFF}é";
  const detokenizer = new Detokenizer(decodeBytes);
  let got = "";
  for (const byte of bytesOf(text)) {
    const piece = detokenizer.push(byte);
    assert.ok(!piece.includes("\uFFFD"));
    assert.ok(text.startsWith(got + piece));
    got += piece;
  }
  assert.equal(got + detokenizer.flush(), text);
});

test("pieces add up to the whole text for any bytes", () => {
  let state = 1;
  const next = () => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 16;
  for (let round = 0; round < 200; round++) {
    const bytes = Array.from({ length: 30 }, () => (next() % 2 ? 0x80 + (next() % 128) : next() % 256));
    const detokenizer = new Detokenizer(decodeBytes);
    const got = bytes.map((byte) => detokenizer.push(byte)).join("") + detokenizer.flush();
    assert.equal(got, decodeBytes(bytes));
  }
});

test("a decoder that drops the space of a first word loses none inside", () => {
  const words = ["\u2581The", "\u2581sky", "\u2581is", "\u2581blue"];
  const decode = (ids) =>
    ids
      .map((id) => words[id])
      .join("")
      .replaceAll("\u2581", " ")
      .replace(/^ /, "");
  const detokenizer = new Detokenizer(decode);
  const got = [0, 1, 2, 3].map((id) => detokenizer.push(id));
  assert.deepEqual(got, ["The", " sky", " is", " blue"]);
});

test("what stays incomplete is given at the end", () => {
  const detokenizer = new Detokenizer(decodeBytes);
  assert.equal(detokenizer.push(0xe6), "");
  assert.equal(detokenizer.flush(), "\uFFFD");
});

test("the text ends before the first stop string, even when it comes in parts", () => {
  const stops = new StopMatcher(["END", "\n\n"]);
  assert.equal(stops.push("one E"), "one ");
  assert.equal(stops.push("N"), "");
  assert.equal(stops.push("T E"), "ENT ");
  assert.equal(stops.push("ND more"), "");
  assert.ok(stops.stopped);
  assert.equal(stops.flush(), "");
});

test("what did not become a stop string is given", () => {
  const stops = new StopMatcher(["\n\nUser:"]);
  assert.equal(stops.push("bye\n"), "bye");
  assert.equal(stops.push("\nUse"), "");
  assert.equal(stops.flush(), "\n\nUse");
  assert.equal(new StopMatcher([]).push("all"), "all");
});
