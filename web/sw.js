/**
 * A service worker that adds the headers of cross-origin isolation, for hosts that cannot send them. Only what needs
 * the headers passes through it: documents and the scripts of workers. Everything else, the model's files among it,
 * the browser fetches as if there were no service worker.
 */
const scope = /** @type {any} */ (globalThis);
const NEED_HEADERS = ["document", "iframe", "frame", "worker", "sharedworker"];

scope.addEventListener("install", () => scope.skipWaiting());
scope.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(scope.clients.claim()));
scope.addEventListener("fetch", (/** @type {any} */ event) => {
  if (NEED_HEADERS.includes(event.request.destination)) event.respondWith(isolated(event.request));
});

/** @param {Request} request */
async function isolated(request) {
  const response = await fetch(request);
  // A redirect that the browser is to follow itself, or an answer that hides from scripts: not to be touched.
  if (response.status === 0 || response.type === "opaqueredirect") return response;
  const headers = new Headers(response.headers);
  headers.set("Cross-Origin-Opener-Policy", "same-origin");
  headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  headers.set("Cross-Origin-Resource-Policy", "same-origin");
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
