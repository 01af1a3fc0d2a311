/**
 * The REST API, typed by the server's own description of it.
 *
 * `answer(api.GET(…))` gives the body of an answer or throws a {@link Refusal}. While no server leads it waits
 * for the next one ({@link patient}). Where the server does not know the browser any more, the user is
 * signed out and the sign-in page shows.
 */

import createClient from "openapi-fetch";

import { signedOut } from "./auth";
import { OWN_PAGE } from "./ownPage";
import { patient } from "./patience";
import { Refusal } from "./problem";
import type { paths } from "./schema";

export const api = createClient<paths>({
  baseUrl: location.origin,
  headers: OWN_PAGE,
  fetch: patient((request) => fetch(request)),
});

api.use({
  onResponse({ response }) {
    if (response.status === 401) signedOut();
    return undefined;
  },
  onError({ error }) {
    return Refusal.from(error);
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

export async function answer<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (!response.ok) throw Refusal.ofBody(error, response.status);
  return data as T;
}

/** A request outside of the description's types: text, bytes, streams. */
export async function raw(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(OWN_PAGE)) headers.set(name, value);
  const response = await fetch(path, { ...init, headers }).catch((error: unknown) => {
    throw init.signal?.aborted ? error : Refusal.from(error);
  });
  if (response.status === 401) signedOut();
  if (!response.ok) throw await Refusal.ofResponse(response);
  return response;
}
