/**
 * Whether this browser is signed in.
 *
 * A token is given once, by hand or behind `#token=` in a link, and changed for a session: a cookie
 * that no script can read and that the browser sends by itself. So there is nothing here that could be
 * stolen. A link's token is in no request's address, and is taken out of the address bar at once.
 */

import { randomId } from "../lib/randomId";
import { CSRF_HEADERS } from "./csrf";
import { ApiError } from "./errors";
import { isNewerSession, sessionAfter } from "./sessions";

const SESSION_PATH = "/api/v1/session";
/** Where the tabs of the browser find the id of the session. It says nothing of the session's secret. */
const SESSION_KEY = "belfry.session";

let signedIn = false;
/** Grows with each signing in: what was read for somebody else is forgotten then. */
let signIns = 0;
const listeners = new Set<() => void>();
/** What a tab tells the other tabs. With the id: the storage may show another tab's write later than this arrives. */
interface SessionMessage {
  state: "in" | "out";
  id: string;
}

/** Tells the other tabs. Tabs of an earlier version use another channel: they would take this for a sign-out. */
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("belfry.session.2");

/** Which session this is, counted from 1; 0 while nobody is signed in. */
export function sessionNumber(): number {
  return signedIn ? signIns : 0;
}

/** Held in memory: what the storage says may be older than what another tab has told. */
let currentId: string | null = null;

/**
 * The session that the browser is in, the same for all of its tabs; a newer one after each signing in or out. Empty
 * while there was none since the storage was cleared.
 */
export function sessionId(): string {
  return (currentId ??= storedSession());
}

function storedSession(): string {
  try {
    return localStorage.getItem(SESSION_KEY) ?? "";
  } catch {
    return "";
  }
}

/** Takes over the id of a session that another tab has begun. Returns whether it is newer. */
export function adoptSession(id: string): boolean {
  if (!isNewerSession(id, sessionId())) return false;
  currentId = id;
  return true;
}

function nextSession(): string {
  adoptSession(storedSession());
  currentId = sessionAfter(sessionId(), Date.now(), randomId());
  try {
    localStorage.setItem(SESSION_KEY, currentId);
  } catch {
    // Without a storage the other tabs hear of it by the channel and by the hub.
  }
  return currentId;
}

export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function setSignedIn(isSignedIn: boolean): void {
  if (isSignedIn) signIns += 1;
  else if (!signedIn) return;
  signedIn = isSignedIn;
  for (const listener of listeners) listener();
}

/** Changes a token for a session; `keep` outlives the browser. Throws a Refusal if it is not valid. */
export async function signIn(token: string, keep: boolean): Promise<void> {
  const response = await fetch(SESSION_PATH, {
    method: "POST",
    headers: { ...CSRF_HEADERS, authorization: `Bearer ${token.trim()}`, "content-type": "application/json" },
    body: JSON.stringify({ keep }),
  });
  if (!response.ok) throw await ApiError.ofResponse(response);
  const id = nextSession();
  setSignedIn(true);
  channel?.postMessage({ state: "in", id } satisfies SessionMessage);
}

export async function signOut(): Promise<void> {
  await fetch(SESSION_PATH, { method: "DELETE", headers: CSRF_HEADERS }).catch(() => undefined);
  const id = nextSession();
  setSignedIn(false);
  channel?.postMessage({ state: "out", id } satisfies SessionMessage);
}

/** The server does not know this browser any more. */
export function markSignedOut(): void {
  setSignedIn(false);
}

/** The token in a fragment such as `#token=bf_admin_…`, if there is one. */
export function tokenInFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("token");
}

/** Takes the token of a link out of the address bar and the history, and signs in with it. */
async function signInWithUrlToken(): Promise<boolean> {
  const token = tokenInFragment(location.hash);
  if (token === null) return false;
  history.replaceState(history.state, "", location.pathname + location.search);
  return signIn(token, true).then(
    () => true,
    () => false,
  );
}

/** Finds out whether there is a session. A server that cannot be reached is no reason to ask for a token. */
async function hasSession(): Promise<boolean> {
  const response = await fetch("/api/v1/me").catch(() => null);
  return response?.status !== 401 && response?.status !== 403;
}

/** To be called once, before anything shows. */
export async function initSession(): Promise<void> {
  addEventListener("hashchange", () => void signInWithUrlToken());
  channel?.addEventListener("message", ({ data }: MessageEvent<SessionMessage>) => {
    adoptSession(data.id);
    setSignedIn(data.state === "in");
  });
  if (!(await signInWithUrlToken()) && (await hasSession())) setSignedIn(true);
}
