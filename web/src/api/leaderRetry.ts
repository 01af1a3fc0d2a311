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

import { isProblem, ApiError } from "./errors";

/** How long a request is sent again; a take-over lasts some three seconds. */
const RETRY_MAX_MS = 10_000;
const RETRY_DELAY_MS = 400;

type Send = (request: Request) => Promise<Response>;

/** Sends a request, again and again while nobody leads; answers with the last answer. */
export function withLeaderRetry(send: Send): Send {
  return async (request) => {
    const deadline = Date.now() + RETRY_MAX_MS;
    for (;;) {
      const response = await send(request.clone());
      if (Date.now() >= deadline || !(await isRetryable(request, response))) return response;
      await wait(RETRY_DELAY_MS, request.signal);
    }
  };
}

async function isRetryable(request: Request, response: Response): Promise<boolean> {
  if (response.status !== 503 || !new URL(request.url).pathname.startsWith("/api/")) return false;
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => null);
  if (!isProblem(body)) return false;
  const error = ApiError.of(body);
  if (error.code === "loading") return true;
  return error.code === "outcome_unknown" && isIdempotent(request);
}

function isIdempotent({ method, headers }: Request): boolean {
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
