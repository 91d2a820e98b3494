/** The life of a pool's worker, in a browser or under Node. */
import { instantiate } from "./cpu_module.js";
import { messageOf } from "./errors.js";
import { Share } from "./pool_share.js";

/**
 * @typedef {{postMessage(message: any): void, onmessage: ((event: any) => void) | null}} Port to who started it
 */

/** @param {Port} port */
export function joinPool(port) {
  port.onmessage = ({ data }) => {
    /** @type {import("./pool.js").Hire} */
    const { module, memory, stackTop, control, threads } = data;
    try {
      const { functions } = instantiate(module, memory, stackTop);
      const share = new Share(control, { functions, bytes: new Uint8Array(memory.buffer) }, threads);
      port.postMessage({ ready: true });
      setTimeout(() => serve(share)); // from a task of its own: the message has left then
    } catch (error) {
      port.postMessage({ failed: messageOf(error) });
    }
  };
}

/** Never returns: the thread ends when it is terminated. @param {Share} share */
function serve(share) {
  for (;;) {
    try {
      share.help();
    } catch (error) {
      console.error(error); // the step's owner has seen that it failed
    }
  }
}
