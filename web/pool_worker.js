/** A thread of the pool, in a browser. */
import { joinPool } from "./pool_thread.js";

joinPool(/** @type {any} */ (globalThis));
