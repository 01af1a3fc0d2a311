/**
 * Requests that wait for the next leader.
 *
 * When the server that decides is gone another one leads within a few seconds. Until then the others answer
 * what needs a decision with 503 `loading`: nothing was done, and the same request is right a moment later. So
 * it is sent again, for as long as the command line would, and a view or a button does not notice more than a delay.
 *
 * # Always true
 * - What may have taken effect (`outcome_unknown`) is sent again only where that does nothing twice: reads,
 *   and requests with an idempotency key.
 * - How ready a server is (`/readyz`) is its own matter, and is told as it is.
 */

import { isProblem, Refusal } from "./problem";

/** How long a request is sent again; a take-over lasts some three seconds. */
const PATIENCE_MS = 10_000;
const AGAIN_AFTER_MS = 400;

type Send = (request: Request) => Promise<Response>;

/** Sends a request, again and again while nobody leads; answers with the last answer. */
export function patient(send: Send): Send {
  return async (request) => {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const response = await send(request.clone());
      if (Date.now() >= deadline || !(await mayRepeat(request, response))) return response;
      await wait(AGAIN_AFTER_MS, request.signal);
    }
  };
}

async function mayRepeat(request: Request, response: Response): Promise<boolean> {
  if (response.status !== 503 || !new URL(request.url).pathname.startsWith("/api/")) return false;
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => null);
  if (!isProblem(body)) return false;
  const refusal = Refusal.of(body);
  if (refusal.code === "loading") return true;
  return refusal.code === "outcome_unknown" && isSafeTwice(request);
}

function isSafeTwice({ method, headers }: Request): boolean {
  return method === "GET" || headers.has("idempotency-key");
}

function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
