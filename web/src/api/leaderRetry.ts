/**
 * Retries of requests while the cluster has no leader.
 *
 * When the leader fails, another server takes over within a few seconds. Until then the other servers answer requests
 * that need the leader with 503 `loading`: nothing was changed, and the same request will succeed a moment later. So
 * the request is retried for as long as the CLI would retry it, and the user sees only a delay.
 *
 * # Invariants
 * - A request that may have taken effect (`outcome_unknown`) is retried only if it is idempotent: reads, and requests
 *   with an idempotency key.
 * - A readiness response (`/readyz`) is returned without retries.
 */

import { isProblem, ApiError } from "./errors";

/** Maximum duration of the retries; a takeover takes about three seconds. */
const RETRY_MAX_MS = 10_000;
const RETRY_DELAY_MS = 400;

type Send = (request: Request) => Promise<Response>;

/** Wraps `send` with retries while there is no leader. Returns the last response. */
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
