/**
 * Whether this browser is signed in.
 *
 * A token is given once, by hand or behind `#token=` in a link, and changed for a session: a cookie
 * that no script can read and that the browser sends by itself. So there is nothing here that could be
 * stolen. A link's token is in no request's address, and is taken out of the address bar at once.
 */

import { randomId } from "../lib/randomId";
import { OWN_PAGE } from "./ownPage";
import { Refusal } from "./problem";
import { isNewerSession, sessionAfter } from "./sessions";

const PATH = "/api/v1/session";
/** Where the tabs of the browser find the id of the session. It says nothing of the session's secret. */
const SESSION = "belfry.session";

let signedIn = false;
/** Grows with each signing in: what was read for somebody else is forgotten then. */
let times = 0;
const listeners = new Set<() => void>();
/** What a tab tells the other tabs. With the id: the storage may show another tab's write later than this arrives. */
interface SignChange {
  state: "in" | "out";
  id: string;
}

/** Tells the other tabs. Tabs of an earlier version use another channel: they would take this for a sign-out. */
const tabs = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("belfry.session.2");

/** Which session this is, counted from 1; 0 while nobody is signed in. */
export function session(): number {
  return signedIn ? times : 0;
}

/** Held in memory: what the storage says may be older than what another tab has told. */
let current: string | null = null;

/**
 * The session that the browser is in, the same for all of its tabs; a newer one after each signing in or out. Empty
 * while there was none since the storage was cleared.
 */
export function sessionId(): string {
  return (current ??= storedSession());
}

function storedSession(): string {
  try {
    return localStorage.getItem(SESSION) ?? "";
  } catch {
    return "";
  }
}

/** Takes over the id of a session that another tab has begun. Returns whether it is newer. */
export function learnSession(id: string): boolean {
  if (!isNewerSession(id, sessionId())) return false;
  current = id;
  return true;
}

function nextSession(): string {
  learnSession(storedSession());
  current = sessionAfter(sessionId(), Date.now(), randomId());
  try {
    localStorage.setItem(SESSION, current);
  } catch {
    // Without a storage the other tabs hear of it by the channel and by the hub.
  }
  return current;
}

export function onSignChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function become(state: boolean): void {
  if (state) times += 1;
  else if (!signedIn) return;
  signedIn = state;
  for (const listener of listeners) listener();
}

/** Changes a token for a session; `keep` outlives the browser. Throws a Refusal if it is not valid. */
export async function signIn(token: string, keep: boolean): Promise<void> {
  const response = await fetch(PATH, {
    method: "POST",
    headers: { ...OWN_PAGE, authorization: `Bearer ${token.trim()}`, "content-type": "application/json" },
    body: JSON.stringify({ keep }),
  });
  if (!response.ok) throw await Refusal.ofResponse(response);
  const id = nextSession();
  become(true);
  tabs?.postMessage({ state: "in", id } satisfies SignChange);
}

export async function signOut(): Promise<void> {
  await fetch(PATH, { method: "DELETE", headers: OWN_PAGE }).catch(() => undefined);
  const id = nextSession();
  become(false);
  tabs?.postMessage({ state: "out", id } satisfies SignChange);
}

/** The server does not know this browser any more. */
export function signedOut(): void {
  become(false);
}

/** The token in a fragment such as `#token=bf_admin_…`, if there is one. */
export function tokenInFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("token");
}

/** Takes the token of a link out of the address bar and the history, and signs in with it. */
async function swallowTokenOfAddress(): Promise<boolean> {
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
export async function beginSession(): Promise<void> {
  addEventListener("hashchange", () => void swallowTokenOfAddress());
  tabs?.addEventListener("message", ({ data }: MessageEvent<SignChange>) => {
    learnSession(data.id);
    become(data.state === "in");
  });
  if (!(await swallowTokenOfAddress()) && (await hasSession())) become(true);
}
