/**
 * Files of one bundle: from the cache where they verify, else downloaded, verified by size and SHA-256, and cached.
 */
import { FileCache } from "./cache.js";
import { WebrelaxError, abortedError, messageOf, throwIfAborted } from "./errors.js";
import { readManifest } from "./manifest.js";

/**
 * @typedef {import("./manifest.js").FileEntry} FileEntry
 * @typedef {import("./manifest.js").Bundle} Bundle
 * @typedef {Uint8Array<ArrayBuffer>} Bytes
 * @typedef {(url: URL, options: {cache?: RequestCache, signal?: AbortSignal | null}) => Promise<Response>} Fetch
 * @typedef {{signal?: AbortSignal | null, caches?: CacheStorage, fetch?: Fetch,
 *   files?: Record<string, FileEntry>}} LoaderOptions
 */

export class Loader {
  #files;
  /** @type {(bytes: number, cached: boolean) => void} told of every piece of a file that has arrived */
  onBytes = () => {};

  /**
   * @param {URL} base the folder of the bundle, with a slash at its end
   * @param {LoaderOptions} [options] `files` where the manifest was read before
   */
  constructor(base, { signal = null, caches = globalThis.caches, fetch = globalThis.fetch, files = {} } = {}) {
    this.base = base;
    this.signal = signal;
    this.cache = new FileCache(caches, base.origin);
    /** @type {Fetch} */
    this.fetch = fetch.bind(globalThis);
    this.#files = files;
  }

  /** Reads manifest.json, always from the server. @returns {Promise<Bundle>} */
  async manifest() {
    const where = this.#where("manifest.json");
    const response = await this.#request("manifest.json", "no-cache");
    let value;
    try {
      value = await response.json();
    } catch (error) {
      throwIfAborted(this.signal);
      throw new WebrelaxError("format", `${where} is not JSON: is there a webrelax bundle at that address?`, {
        cause: error,
      });
    }
    const bundle = readManifest(value, where);
    this.#files = bundle.files;
    return bundle;
  }

  /** @param {string} name @returns {Promise<Bytes>} the verified content */
  async file(name) {
    const entry = this.#files[name];
    if (!entry) throw new WebrelaxError("format", `manifest.json lists no file ${name}: build the site again.`);
    throwIfAborted(this.signal);
    const cached = await this.cache.get(entry.sha256);
    if (cached !== null) {
      if (cached.length === entry.size && (await sha256(cached)) === entry.sha256) {
        this.onBytes(cached.length, true);
        return cached;
      }
      await this.cache.delete(entry.sha256);
    }
    throwIfAborted(this.signal);
    const bytes = await this.#download(name, entry.size);
    if ((await sha256(bytes)) !== entry.sha256) {
      throw new WebrelaxError(
        "damaged-file",
        `${this.#where(name)} is damaged: its SHA-256 is not the one in manifest.json; ` +
          "upload the file again, then retry.",
      );
    }
    await this.cache.put(entry.sha256, bytes);
    return bytes;
  }

  /** @param {string} name @returns {Promise<any>} */
  async json(name) {
    const text = new TextDecoder().decode(await this.file(name));
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new WebrelaxError("format", `${this.#where(name)} is not JSON: build the site again.`, { cause: error });
    }
  }

  /** @param {string} name */
  #where(name) {
    return new URL(name, this.base).pathname;
  }

  /**
   * @param {string} name
   * @param {RequestCache} mode "no-store" for what Cache Storage keeps, so that the browser does not keep it twice
   */
  async #request(name, mode) {
    let response;
    try {
      response = await this.fetch(new URL(name, this.base), { cache: mode, signal: this.signal });
    } catch (error) {
      if (this.signal?.aborted) throw abortedError();
      if (error instanceof WebrelaxError) throw error;
      throw new WebrelaxError(
        "network",
        `${this.#where(name)} could not be fetched (${messageOf(error)}): check the connection, then retry.`,
        { cause: error },
      );
    }
    if (response.ok) return response;
    if (response.status === 404 || response.status === 410) {
      throw new WebrelaxError(
        "missing-file",
        `${this.#where(name)} is missing on the server (HTTP ${response.status}): ` +
          "check the model's name and that the whole site was uploaded.",
      );
    }
    throw new WebrelaxError(
      "network",
      `The server answered HTTP ${response.status} for ${this.#where(name)}: retry in a moment.`,
    );
  }

  /** @param {string} name @param {number} size @returns {Promise<Bytes>} exactly `size` bytes */
  async #download(name, size) {
    const response = await this.#request(name, "no-store");
    const bytes = new Uint8Array(size);
    const reader = response.body?.getReader();
    let at = 0;
    while (reader) {
      let step;
      try {
        step = await reader.read();
      } catch (error) {
        if (this.signal?.aborted) throw abortedError();
        throw new WebrelaxError(
          "network",
          `The download of ${this.#where(name)} stopped after ${at} of ${size} bytes: ` +
            "check the connection, then retry; finished files are kept.",
          { cause: error },
        );
      }
      if (step.done) break;
      if (at + step.value.length > size) {
        await reader.cancel();
        throw this.#wrongSize(name, `more than ${size}`, size);
      }
      bytes.set(step.value, at);
      at += step.value.length;
      this.onBytes(step.value.length, this.base.protocol === "file:");
    }
    if (at !== size) throw this.#wrongSize(name, `${at}`, size);
    return bytes;
  }

  /** @param {string} name @param {string} found @param {number} size */
  #wrongSize(name, found, size) {
    return new WebrelaxError(
      "damaged-file",
      `${this.#where(name)} is damaged: it has ${found} bytes where manifest.json says ${size}; ` +
        "upload the file again, then retry.",
    );
  }
}

/** @param {Bytes} bytes @returns {Promise<string>} lower-case hexadecimal */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
