/** A model's text as elements: paragraphs, code blocks, `code` and **bold**. Text never becomes markup. */

/** @typedef {{code: boolean, text: string}} Block */

/**
 * Splits at fences of three backquotes; a block that is still open while the text streams in is code already.
 * @param {string} text
 * @returns {Block[]}
 */
export function blocksOf(text) {
  /** @type {Block[]} */
  const blocks = [];
  let code = false;
  /** @type {string[]} */
  let lines = [];
  const close = () => {
    const content = lines.join("\n");
    if (code) blocks.push({ code, text: content });
    else for (const part of content.split(/\n\s*\n/)) if (part.trim()) blocks.push({ code, text: part.trim() });
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      close();
      code = !code;
    } else {
      lines.push(line);
    }
  }
  if (lines.length > 0) close();
  return blocks;
}

/**
 * Makes `element` show `text`, touching only what has changed since the last time.
 * @param {HTMLElement} element
 * @param {string} text
 */
export function renderText(element, text) {
  const blocks = blocksOf(text);
  blocks.forEach((block, index) => {
    const old = /** @type {HTMLElement | undefined} */ (element.children[index]);
    const tag = block.code ? "PRE" : "P";
    if (old?.tagName === tag && old.dataset.source === block.text) return;
    const fresh = document.createElement(tag);
    fresh.dataset.source = block.text;
    if (block.code) {
      fresh.tabIndex = 0; // it scrolls sideways: by keyboard too
      fresh.textContent = block.text;
    } else {
      fresh.append(...inline(block.text));
    }
    if (old) old.replaceWith(fresh);
    else element.append(fresh);
  });
  while (element.children.length > blocks.length) element.lastElementChild?.remove();
}

/** @param {string} text @returns {(Node | string)[]} */
function inline(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part) => {
    const width = part.startsWith("`") ? 1 : 2;
    if (!/^(`[^`\n]+`|\*\*[^*\n]+\*\*)$/.test(part)) return part;
    const element = document.createElement(width === 1 ? "code" : "strong");
    element.textContent = part.slice(width, -width);
    return element;
  });
}
