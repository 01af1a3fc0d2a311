/**
 * Typed client of the REST API; the types are generated from the server's OpenAPI document.
 *
 * `unwrap(api.GET(…))` returns the body of a response or throws an {@link ApiError}. While there is no leader,
 * requests are retried ({@link withLeaderRetry}). On a 401 response, the user is logged out and the login page is
 * shown. On a 403 response, the rights of the caller are read again.
 */

import createClient from "openapi-fetch";

import { markForbidden, markSignedOut } from "./auth";
import { CSRF_HEADERS } from "./csrf";
import { withLeaderRetry } from "./leaderRetry";
import { ApiError } from "./errors";
import type { paths } from "./schema";

export const api = createClient<paths>({
  baseUrl: location.origin,
  headers: CSRF_HEADERS,
  fetch: withLeaderRetry((request) => fetch(request)),
});

api.use({
  onResponse({ response }) {
    if (response.status === 401) markSignedOut();
    if (response.status === 403) markForbidden();
    return undefined;
  },
  onError({ error }) {
    return ApiError.from(error);
  },
});

interface ApiResponse<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

export async function unwrap<T>(request: Promise<ApiResponse<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (!response.ok) throw ApiError.ofBody(error, response);
  return data as T;
}

/**
 * Sends a request that the OpenAPI types do not cover, for text, bytes or streams. Throws an {@link ApiError} on
 * failure.
 */
export async function fetchRaw(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(CSRF_HEADERS)) headers.set(name, value);
  const response = await fetch(path, { ...init, headers }).catch((error: unknown) => {
    throw init.signal?.aborted ? error : ApiError.from(error);
  });
  if (response.status === 401) markSignedOut();
  if (response.status === 403) markForbidden();
  if (!response.ok) throw await ApiError.ofResponse(response);
  return response;
}
