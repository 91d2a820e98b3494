/** Lets the events of this thread be heard: the messages that came while it computed. */

/** @type {(() => void)[]} */
const waiting = [];
/** @type {MessagePort | undefined} */
let port;

/** @returns {Promise<void>} resolves in a task of its own, without the delay that timers have */
export function breathe() {
  const later = /** @type {any} */ (globalThis).setImmediate; // Node's; an open channel would keep it alive
  if (later) return new Promise((resolve) => later(resolve));
  if (!port) {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => waiting.shift()?.();
    port = port2;
  }
  return new Promise((resolve) => {
    waiting.push(resolve);
    /** @type {MessagePort} */ (port).postMessage(null);
  });
}
