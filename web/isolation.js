/**
 * Cross-origin isolation, which threads need, on hosts that do not send its headers: a service worker adds them
 * (sw.js), once the page is loaded again through it.
 */

const TRIED = "webrelax-isolation-tried";
const LONGEST_WAIT_MS = 5000;

/**
 * Makes the page isolated if it is not, by one reload; never returns then. Where that cannot be or has not helped
 * before, it returns, and the page does without.
 */
export async function isolatePage() {
  if (!globalThis.isSecureContext || !navigator.serviceWorker) return;
  try {
    if (globalThis.crossOriginIsolated) return sessionStorage.removeItem(TRIED);
    if (sessionStorage.getItem(TRIED)) return;
    sessionStorage.setItem(TRIED, "yes"); // before all else: whatever happens, the page is not loaded again twice
    const registration = await navigator.serviceWorker.register("sw.js");
    if (!(await isActive(registration))) return;
  } catch {
    return; // no storage, no service worker, or none here: a private window, a policy
  }
  location.reload();
  await new Promise(() => {});
}

/** @param {ServiceWorkerRegistration} registration @returns {Promise<boolean>} once it is, or will not be */
function isActive({ installing, waiting, active }) {
  if (active) return Promise.resolve(true);
  const worker = installing ?? waiting;
  return new Promise((resolve) => {
    setTimeout(() => resolve(false), LONGEST_WAIT_MS);
    worker?.addEventListener("statechange", () => {
      if (worker.state === "activated" || worker.state === "redundant") resolve(worker.state === "activated");
    });
  });
}
