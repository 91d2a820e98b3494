/** The chat page: loads the model, keeps the conversation, shows what happens. */
import { WebrelaxError, messageOf } from "./errors.js";
import { isolatePage } from "./isolation.js";
import { renderText } from "./render.js";
import { createEngine } from "./runtime.js";
import { describeRun, readSettings, setDefaults, setUpSettings, showFacts } from "./settings.js";

/**
 * @typedef {import("./runtime.js").Engine} Engine
 * @typedef {import("./runtime.js").Progress} Progress
 * @typedef {{role: "user" | "assistant", content: string}} Turn
 */

/** @template {HTMLElement} [T=HTMLElement] @param {string} id @returns {T} */
const $ = (id) => /** @type {T} */ (document.getElementById(id));
const page = {
  scroll: $("scroll"),
  hero: $("hero"),
  loading: $("loading"),
  examples: $("examples"),
  messages: $("messages"),
  error: $("error"),
  errorText: $("error-text"),
  status: $("status"),
  stats: $("stats"),
  device: $("device"),
  modelName: $("model-name"),
  form: /** @type {HTMLFormElement} */ ($("form")),
  prompt: /** @type {HTMLTextAreaElement} */ ($("prompt")),
  send: /** @type {HTMLButtonElement} */ ($("send")),
  stop: /** @type {HTMLButtonElement} */ ($("stop")),
  retry: /** @type {HTMLButtonElement} */ ($("retry")),
  useCPU: /** @type {HTMLButtonElement} */ ($("use-cpu")),
  progress: /** @type {HTMLProgressElement} */ ($("progress")),
  progressText: $("progress-text"),
  progressPercent: $("progress-percent"),
  model: /** @type {HTMLSelectElement} */ ($("model")),
};

/** The page's own overrides: ?model=, ?target=, ?threads=. */
const address = new URL(location.href);
/** @type {Engine | null} */
let engine = null;
/** Whether it was the GPU that was to run the model, and the CPU could instead. */
let canUseCPU = false;
/** @type {AbortController | null} of the answer that is being written */
let answering = null;
/** @type {Turn[]} */
let conversation = [];

// --- Loading ---------------------------------------------------------------------------------------------------------

/** @returns {Promise<string>} the model to load: the page's ?model=, else the first of models.json */
async function chooseModel() {
  const response = await fetch("models.json", { cache: "no-cache" }).catch(() => null);
  /** @type {string[]} */
  const names = response?.ok ? ((await response.json().catch(() => null))?.models ?? []) : [];
  if (names.length === 0) {
    throw new WebrelaxError(
      "missing-file",
      "models.json names no model: build one into this site with `webrelax build`.",
    );
  }
  const wanted = address.searchParams.get("model") ?? names[0];
  page.model.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
  page.model.hidden = names.length < 2;
  page.modelName.textContent = names.length < 2 ? wanted : "";
  if (!names.includes(wanted)) {
    throw new WebrelaxError("missing-file", `This site has no model "${wanted}": it has ${names.join(", ")}.`);
  }
  document.title = `${wanted} · webrelax`;
  return wanted;
}

/** @param {Progress} progress */
function showProgress({ phase, text, loaded, total, compiled, kernels }) {
  // Downloading is nearly all of the way; the compilation that outlasts it is the rest.
  const bytes = total ? loaded / total : 0;
  const share = phase === "ready" ? 1 : 0.95 * bytes + 0.05 * (kernels ? compiled / kernels : 0);
  page.progress.value = share;
  page.progressText.textContent = text;
  page.progressPercent.textContent = total ? `${Math.floor(share * 100)}%` : "";
}

async function load() {
  engine?.dispose();
  engine = null;
  hideError();
  page.hero.hidden = conversation.length > 0;
  page.loading.hidden = false;
  page.examples.hidden = true;
  page.progress.removeAttribute("value");
  page.progressText.textContent = "Starting";
  page.progressPercent.textContent = "";
  page.stats.textContent = "";
  setStatus("Loading");
  updateButtons();
  canUseCPU = false;
  try {
    const name = await chooseModel();
    const threads = address.searchParams.get("threads");
    const loaded = await createEngine({
      model: `models/${encodeURIComponent(name)}/`,
      target: address.searchParams.get("target"),
      threads: threads === null ? null : Number(threads),
      onTarget: (target, built) => {
        canUseCPU = target === "webgpu" && built.includes("wasm");
        // What was said is worth more than threads: a page that reloads would lose it.
        return target === "wasm" && conversation.length === 0 ? isolatePage() : undefined;
      },
      onProgress: (progress) => {
        showProgress(progress);
        if (conversation.length > 0) page.stats.textContent = progress.text;
      },
    });
    engine = loaded;
    loaded.failed.then((error) => engine === loaded && !answering && showError(error));
    // For the console, and for whoever scripts the page.
    Object.assign(globalThis, { engine });
    page.device.textContent = describeRun(loaded.info);
    setDefaults(loaded.info.sampling);
    showFacts(loaded.info);
    page.loading.hidden = true;
    page.examples.hidden = false;
    page.stats.textContent = "";
    setStatus("Ready");
    updateButtons();
  } catch (error) {
    showError(error);
  }
}

// --- The conversation ------------------------------------------------------------------------------------------------

/** @param {"user" | "assistant"} role @param {string} text @returns {HTMLElement} */
function addMessage(role, text) {
  const message = document.createElement("article");
  message.className = `message ${role}`;
  message.dataset.testid = `message-${role}`;
  message.setAttribute("aria-label", role === "user" ? "You" : "Model");
  const body = document.createElement("div");
  body.className = "body";
  if (role === "user") body.textContent = text;
  message.append(body);
  page.messages.append(message);
  page.hero.hidden = true;
  return message;
}

/** @param {HTMLElement} message @param {string} text */
function addNote(message, text) {
  const note = document.createElement("p");
  note.className = "note";
  note.textContent = text;
  message.append(note);
}

/** @param {string} text */
async function ask(text) {
  if (!engine || answering) return;
  hideError();
  const { system, ...sampling } = readSettings();
  const question = addMessage("user", text);
  const answer = addMessage("assistant", "");
  const view = new AnswerView(answer);
  const turns = conversation; // a new conversation may begin meanwhile
  turns.push({ role: "user", content: text });
  answering = new AbortController();
  page.messages.setAttribute("aria-busy", "true");
  setStatus("Reading");
  page.stats.textContent = "";
  updateButtons();
  scrollToEnd();
  /** @type {unknown} */
  let failure = null;
  try {
    const messages = system ? [{ role: "system", content: system }, ...turns] : turns;
    const stream = engine.chat.completions.create({ messages, ...sampling, stream: true, signal: answering.signal });
    for await (const chunk of stream) {
      setStatus("Writing");
      view.add(chunk);
    }
  } catch (error) {
    failure = error;
  }
  const stopped = failure instanceof WebrelaxError && failure.code === "aborted";
  answering = null;
  view.finish(stopped);
  page.messages.setAttribute("aria-busy", "false");
  if (view.text) {
    turns.push({ role: "assistant", content: view.text });
  } else if (failure !== null && turns === conversation) {
    // Nothing came of it: the question goes back to where it can be changed.
    turns.pop();
    question.remove();
    answer.remove();
    page.hero.hidden = turns.length > 0;
    if (!page.prompt.value) setPrompt(text);
  }
  setStatus(stopped ? "Stopped" : "Ready");
  updateButtons();
  if (failure !== null && !stopped) showError(failure);
}

/** An answer as it comes: drawn at most once a frame. */
class AnswerView {
  text = "";
  #message;
  #body;
  #tokens = 0;
  #first = 0;
  #frame = 0;

  /** @param {HTMLElement} message */
  constructor(message) {
    this.#message = message;
    this.#body = /** @type {HTMLElement} */ (message.querySelector(".body"));
    message.classList.add("busy");
  }

  /** @param {import("./completions.js").Completion} chunk */
  add({ choices: [choice], usage }) {
    this.text += choice.delta?.content ?? "";
    if (this.#tokens === 0) this.#first = performance.now();
    this.#tokens += choice.token_ids.length;
    if (usage) this.#summary(usage, choice.finish_reason);
    else this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** @param {boolean} stopped */
  finish(stopped) {
    cancelAnimationFrame(this.#frame);
    const follow = isAtEnd();
    renderText(this.#body, this.text);
    this.#message.classList.remove("busy");
    if (stopped) addNote(this.#message, "Stopped.");
    if (follow) scrollToEnd();
  }

  #draw() {
    this.#frame = 0;
    const follow = isAtEnd();
    renderText(this.#body, this.text);
    if (follow) scrollToEnd();
    const seconds = (performance.now() - this.#first) / 1000;
    if (this.#tokens > 1) page.stats.textContent = `${rate((this.#tokens - 1) / seconds)} tokens/s`;
  }

  /** @param {import("./completions.js").Usage} usage @param {string | null} reason */
  #summary({ total_tokens, completion_tokens, extra }, reason) {
    const context = engine?.info.context ?? 0;
    page.stats.textContent =
      (completion_tokens > 1 ? `${rate(extra.decode_tokens_per_s)} tokens/s · ` : "") +
      `first after ${extra.time_to_first_token_s.toFixed(1)} s · ` +
      `${Math.min(total_tokens, context)} of ${context} tokens`;
    if (reason !== "length") return;
    const full = total_tokens > context;
    addNote(
      this.#message,
      full
        ? `The conversation has filled the model's context of ${context} tokens: begin a new one to go on.`
        : `Cut at the longest answer of ${completion_tokens} tokens, which the settings can raise.`,
    );
  }
}

/** @param {number} value */
const rate = (value) => (value < 10 ? value.toFixed(1) : value.toFixed(0));

function newConversation() {
  answering?.abort();
  conversation = [];
  page.messages.replaceChildren();
  page.hero.hidden = false;
  page.stats.textContent = "";
  if (engine) hideError();
  if (matchMedia("(pointer: fine)").matches) page.prompt.focus();
}

// --- Small things ----------------------------------------------------------------------------------------------------

/** @param {string} text */
function setStatus(text) {
  if (page.status.textContent !== text) page.status.textContent = text;
}

/** @param {unknown} error */
function showError(error) {
  console.error(error);
  page.errorText.textContent = messageOf(error);
  page.error.dataset.code = error instanceof WebrelaxError ? error.code : "";
  page.error.hidden = false;
  // What the user can change needs no second try of the same.
  const changeable = error instanceof WebrelaxError && ["context", "options"].includes(error.code);
  page.retry.hidden = changeable;
  page.useCPU.hidden = changeable || !canUseCPU;
  if (!changeable) {
    engine?.dispose();
    engine = null;
    page.loading.hidden = true;
    setStatus("Not ready");
  }
  updateButtons();
}

function hideError() {
  page.error.hidden = true;
  page.errorText.textContent = "";
}

function updateButtons() {
  const focused = document.activeElement === page.stop || document.activeElement === page.send;
  page.send.hidden = answering !== null;
  page.stop.hidden = answering === null;
  page.send.disabled = !engine || page.prompt.value.trim() === "";
  if (focused) page.prompt.focus();
}

/** @param {string} text */
function setPrompt(text) {
  page.prompt.value = text;
  fitPrompt();
  updateButtons();
}

/** Where CSS field-sizing is not known yet. */
function fitPrompt() {
  if (CSS.supports("field-sizing", "content")) return;
  page.prompt.style.height = "auto";
  page.prompt.style.height = `${page.prompt.scrollHeight + 2}px`;
}

const isAtEnd = () => page.scroll.scrollHeight - page.scroll.scrollTop - page.scroll.clientHeight < 80;
const scrollToEnd = () => page.scroll.scrollTo({ top: page.scroll.scrollHeight });

function submit() {
  const text = page.prompt.value.trim();
  if (!text || !engine || answering) return;
  setPrompt("");
  void ask(text);
}

page.form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
page.prompt.addEventListener("keydown", (event) => {
  // isComposing: Enter picks a candidate of an input method.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
page.prompt.addEventListener("input", () => {
  fitPrompt();
  updateButtons();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && answering && !$("settings").matches(":popover-open")) answering.abort();
});
page.stop.addEventListener("click", () => answering?.abort());
page.retry.addEventListener("click", () => void load());
page.useCPU.addEventListener("click", () => {
  address.searchParams.set("target", "wasm");
  history.replaceState(null, "", address); // a reload stays with it
  void load();
});
$("new").addEventListener("click", newConversation);
page.model.addEventListener("change", () => {
  address.searchParams.set("model", page.model.value);
  location.assign(address);
});
page.examples.addEventListener("click", ({ target }) => {
  if (target instanceof HTMLButtonElement) void ask(target.textContent ?? "");
});

setUpSettings();
// Where there is a keyboard on the screen, it stays down until it is asked for.
if (matchMedia("(pointer: fine)").matches) page.prompt.focus();
void load();
