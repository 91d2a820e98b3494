/** The settings panel: its values, kept in this browser, and the facts of the run. */
import { formatBytes } from "./errors.js";

/**
 * @typedef {{temperature: number, top_p: number, max_tokens: number, seed: number | null, system: string}} Settings
 * @typedef {import("./runtime.js").EngineInfo} EngineInfo
 */

const STORE = "webrelax-settings";
const NAMES = /** @type {const} */ (["temperature", "top_p", "max_tokens", "seed", "system"]);
/** Small models ramble at a temperature of 1. */
const DEFAULTS = { temperature: 0.3, top_p: 0.9, max_tokens: 512 };

const form = /** @type {HTMLFormElement} */ (document.getElementById("settings-form"));
const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));

/** Fills the panel with what was set before, and keeps what is changed. */
export function setUpSettings() {
  setDefaults({});
  for (const [name, value] of Object.entries(stored())) if (field(name)) field(name).value = String(value);
  showValues();
  form.addEventListener("input", () => {
    showValues();
    store();
  });
  form.addEventListener("reset", () =>
    setTimeout(() => {
      // after the fields have been reset
      showValues();
      store();
    }),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
}

/**
 * The model's own defaults, where it has some.
 * @param {{temperature?: number, top_p?: number}} own
 */
export function setDefaults(own) {
  const kept = stored();
  for (const [name, value] of Object.entries({ ...DEFAULTS, ...definedOf(own) })) {
    if (!(name in DEFAULTS)) continue;
    field(name).defaultValue = String(value);
    if (name in kept) field(name).value = String(kept[name]);
  }
  showValues();
}

/** @returns {Settings} what is wrong in a field counts as its default */
export function readSettings() {
  const valid = (/** @type {string} */ name) => {
    const input = field(name);
    return input.validity.valid && input.value !== "" ? input.value : input.defaultValue;
  };
  const seed = valid("seed");
  return {
    temperature: Number(valid("temperature")),
    top_p: Number(valid("top_p")),
    max_tokens: Number(valid("max_tokens")),
    seed: seed === "" ? null : Number(seed),
    system: field("system").value.trim(),
  };
}

/** @param {EngineInfo} info */
export function showFacts(info) {
  const { memory, dispatches, load } = info;
  /** @type {[string, string][]} */
  const facts = [
    ["Model", `${info.model} (${info.architecture})`],
    ["Target", info.target],
    ["Device", describeDevice(info)],
    ["Profile", [info.profile, ...info.features].join(", ")],
    ["Computed", computedBy(info)],
    ["Context", `${info.context} tokens`],
    ["Weights", formatBytes(memory.weight ?? 0)],
    ["Conversation", formatBytes(memory.state ?? 0)],
    ["Activations", formatBytes(memory.storage ?? 0)],
    ["Dispatches a token", String(dispatches.decode)],
    ["Loaded in", `${load.total_s.toFixed(1)} s`],
    ["Downloaded", load.downloaded_bytes === 0 ? "nothing: stored before" : formatBytes(load.downloaded_bytes)],
  ];
  const list = /** @type {HTMLElement} */ (document.getElementById("facts"));
  list.replaceChildren(
    ...facts.flatMap(([name, value]) => {
      const [term, detail] = [document.createElement("dt"), document.createElement("dd")];
      [term.textContent, detail.textContent] = [name, value];
      return [term, detail];
    }),
  );
}

/** @param {EngineInfo} info @returns {string} what the browser tells of the device */
function describeDevice({ device }) {
  return device.description || [device.vendor, device.architecture].filter(Boolean).join(" ") || "unnamed GPU";
}

/** @param {EngineInfo} info @returns {string} target, device, threads and profile in a line */
export function describeRun(info) {
  const parts =
    info.target === "wasm"
      ? [describeDevice(info), threadsOf(info), info.profile]
      : ["WebGPU", describeDevice(info), info.profile, info.device.isFallbackAdapter ? "software" : ""];
  return parts.filter(Boolean).join(" · ");
}

/** @param {EngineInfo} info */
function computedBy(info) {
  if (info.target === "wasm") return `on the CPU, by ${threadsOf(info)}`;
  return info.device.isFallbackAdapter ? "in software, slowly" : "on the GPU";
}

/** @param {EngineInfo} info */
function threadsOf({ threads }) {
  return threads === 1 ? "1 thread" : `${threads} threads`;
}

function showValues() {
  for (const name of ["temperature", "top_p"]) {
    const output = /** @type {HTMLOutputElement} */ (document.getElementById(`${name}-value`));
    output.value = Number(field(name).value).toFixed(2);
  }
}

/** @returns {Record<string, unknown>} */
function stored() {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

function store() {
  const changed = NAMES.filter((name) => field(name).value !== field(name).defaultValue);
  try {
    localStorage.setItem(STORE, JSON.stringify(Object.fromEntries(changed.map((name) => [name, field(name).value]))));
  } catch {
    // A private window keeps nothing: the panel works all the same.
  }
}

/** @param {Record<string, unknown>} values */
function definedOf(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
