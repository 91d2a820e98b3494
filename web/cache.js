/**
 * Verified files by their SHA-256 in Cache Storage. Every failure means "not cached": a private window, a full disk
 * or a half-written entry costs a download, never an answer.
 */
const CACHE_NAME = "webrelax-files-1";

export class FileCache {
  /**
   * @param {CacheStorage | undefined} storage
   * @param {string} origin of the site: its models share their equal files
   */
  constructor(storage, origin) {
    this.storage = storage;
    this.origin = origin;
  }

  /** Keys are addresses, but are never fetched. @param {string} sha256 */
  #key(sha256) {
    return `${this.origin}/.webrelax/sha256/${sha256}`;
  }

  /** @returns {Promise<Cache | null>} */
  async #open() {
    try {
      return (await this.storage?.open(CACHE_NAME)) ?? null;
    } catch {
      return null;
    }
  }

  /**
   * @param {string} sha256
   * @returns {Promise<Uint8Array<ArrayBuffer> | null>} the bytes as stored: the caller verifies them
   */
  async get(sha256) {
    try {
      const response = await (await this.#open())?.match(this.#key(sha256));
      return response ? new Uint8Array(await response.arrayBuffer()) : null;
    } catch {
      return null;
    }
  }

  /** @param {string} sha256 @param {Uint8Array<ArrayBuffer>} bytes verified ones */
  async put(sha256, bytes) {
    try {
      await (await this.#open())?.put(this.#key(sha256), new Response(bytes));
    } catch {
      await this.delete(sha256);
    }
  }

  /** @param {string} sha256 */
  async delete(sha256) {
    try {
      await (await this.#open())?.delete(this.#key(sha256));
    } catch {
      // Nothing to heal where nothing can be stored.
    }
  }
}
