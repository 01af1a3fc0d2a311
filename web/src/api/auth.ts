/**
 * Authentication state of this browser.
 *
 * The user logs in with a password, enters a token, or opens a link with `#token=`. Either is exchanged for a session
 * cookie that scripts cannot read and that the browser sends automatically. So no script can steal a credential from the
 * page. The token of a link is not part of any request's URL, and it is removed from the address bar at once. The same
 * holds for the secret of an invitation, `#invite=`, which stays in memory until the user has chosen a password.
 *
 * A login at the OpenID provider leaves the page. The server sets the cookie of the session when the provider sends the
 * browser back, or adds the reason of a failure to the address, `#login_error=`.
 */

import { randomId } from "../lib/randomId";
import { CSRF_HEADERS } from "./csrf";
import { ApiError } from "./errors";
import type { CheckedInvitation, LoggedIn, LoginMethods, Me, StartedOidcLogin } from "./schema";
import { isNewerSession, sessionAfter } from "./sessions";

const SESSION_PATH = "/api/v1/session";
/**
 * Local storage key of the session id, shared by the browser's tabs. The id reveals nothing about the session's
 * secret.
 */
const SESSION_KEY = "belfry.session";

let signedIn = false;
/** Secret of the invitation whose link the user has opened; null without one. */
let invitation: string | null = null;
/** Number of sign-ins in this page. Data read in an earlier session is discarded when it grows. */
let signIns = 0;
const listeners = new Set<() => void>();
/** Caller of the session, as the server returned it at the sign-in or at the start of the page. */
let caller: Me | undefined;
const forbiddenListeners = new Set<() => void>();
/**
 * Message from a tab to the other tabs. It carries the id, because local storage may show another tab's write later
 * than the message arrives.
 */
interface SessionMessage {
  state: "in" | "out";
  id: string;
}

/**
 * Channel to the other tabs. Tabs of an earlier version use another channel: they would read this message as a
 * sign-out.
 */
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("belfry.session.2");

/** Number of the current session in this page, from 1; 0 while no user is signed in. */
export function sessionNumber(): number {
  return signedIn ? signIns : 0;
}

/** Id of the session, cached in memory: local storage may be older than a message of another tab. */
let currentId: string | null = null;

/**
 * Returns the id of the browser's session, the same in all tabs. Each sign-in or sign-out creates a newer one. Empty
 * if there was none since local storage was cleared.
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

/** Adopts the id of a session that another tab has started. Returns whether it is newer. */
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
    // Without local storage, the other tabs learn of it from the channel and from the hub.
  }
  return currentId;
}

/** Returns the caller of the session with its rights, as they were at its start; undefined if not known. */
export function initialCaller(): Me | undefined {
  return caller;
}

/** Reports that the server has denied a request: the rights of the caller may have changed. */
export function markForbidden(): void {
  for (const listener of forbiddenListeners) listener();
}

export function onForbidden(listener: () => void): () => void {
  forbiddenListeners.add(listener);
  return () => forbiddenListeners.delete(listener);
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

/**
 * Exchanges a token for a session; with `remember`, the session survives a restart of the browser. Throws an ApiError if
 * the token is invalid.
 */
export async function signIn(token: string, remember: boolean): Promise<void> {
  const response = await fetch(SESSION_PATH, {
    method: "POST",
    headers: { ...CSRF_HEADERS, authorization: `Bearer ${token.trim()}`, "content-type": "application/json" },
    body: JSON.stringify({ remember }),
  });
  if (!response.ok) throw await ApiError.ofResponse(response);
  begin(await readCaller(response));
}

/** Sends a request without a session, or about it. Throws an ApiError on failure. */
async function post(path: string, body: object): Promise<Response> {
  const response = await fetch(path, {
    method: "POST",
    headers: { ...CSRF_HEADERS, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await ApiError.ofResponse(response);
  return response;
}

function begin(me: Me | undefined): void {
  caller = me;
  const id = nextSession();
  setSignedIn(true);
  channel?.postMessage({ state: "in", id } satisfies SessionMessage);
}

/**
 * Logs in with a password, and with a code if the account has a second factor. Throws an ApiError if the account, the
 * password or the code is wrong.
 */
export async function logIn(
  account: string,
  password: string,
  code: string | undefined,
  remember: boolean,
): Promise<void> {
  const body = { account: account.trim(), password, code, remember, cookie: true };
  const response = await post("/api/v1/login", body);
  begin(((await response.json()) as LoggedIn).me);
}

/** Session storage key of a login at the OpenID provider that this tab has started. */
const OIDC_KEY = "belfry.oidc";
/** Reason why a login at the OpenID provider failed; null without one. */
let loginError: string | null = null;

/** Returns the ways to log in, in addition to passwords and tokens. */
export async function loginMethods(): Promise<LoginMethods> {
  const response = await fetch("/api/v1/login/methods");
  if (!response.ok) throw await ApiError.ofResponse(response);
  return (await response.json()) as LoginMethods;
}

/**
 * Leaves the page for the OpenID provider, which sends the browser back. With the secret of an invitation, the login is
 * linked to its account. Throws an ApiError if the provider cannot be reached.
 */
export async function leaveForProvider(remember: boolean, secret?: string): Promise<void> {
  const return_to = secret === undefined ? location.pathname + location.search : "/";
  const response = await post("/api/v1/login/oidc", { remember, return_to, invitation: secret });
  const { url } = (await response.json()) as StartedOidcLogin;
  try {
    sessionStorage.setItem(OIDC_KEY, "started");
  } catch {
    // Without session storage, the other tabs of the browser do not learn of the login.
  }
  location.assign(url);
  // The page stays as it is until the provider answers.
  await new Promise(() => undefined);
}

/** Returns whether this tab comes back from the OpenID provider. */
function comesFromProvider(): boolean {
  try {
    const started = sessionStorage.getItem(OIDC_KEY) !== null;
    sessionStorage.removeItem(OIDC_KEY);
    return started;
  } catch {
    return false;
  }
}

/** Returns the reason why the last login at the OpenID provider failed; null without one. */
export function failedLogin(): string | null {
  return loginError;
}

/** Returns the reason in a fragment such as `#login_error=expired`, or null. */
export function loginErrorInFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("login_error");
}

/** Removes the reason of a failed login from the address bar, and keeps it in memory. */
function takeLoginError(): void {
  const found = loginErrorInFragment(location.hash);
  if (found === null) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  loginError = found;
}

/** Returns the secret of the invitation whose link the user has opened; null without one. */
export function openInvitation(): string | null {
  return invitation;
}

/** Returns the account of an invitation. Throws an ApiError if the invitation is not valid. */
export async function checkInvitation(secret: string): Promise<CheckedInvitation> {
  const response = await post("/api/v1/invitations/check", { secret });
  return (await response.json()) as CheckedInvitation;
}

/** Sets the password with an invitation, and logs in. Throws an ApiError if the password or the invitation is invalid. */
export async function acceptInvitation(
  secret: string,
  password: string,
  code: string | undefined,
  remember: boolean,
): Promise<void> {
  const response = await post("/api/v1/invitations/accept", {
    secret,
    password,
    code,
    remember,
    cookie: true,
  });
  const { me } = (await response.json()) as LoggedIn;
  invitation = null;
  begin(me);
}

/** Forgets the invitation: the user goes to the login page, or back to the own session. */
export function leaveInvitation(): void {
  invitation = null;
  for (const listener of listeners) listener();
}

export async function signOut(): Promise<void> {
  await fetch(SESSION_PATH, { method: "DELETE", headers: CSRF_HEADERS }).catch(() => undefined);
  const id = nextSession();
  setSignedIn(false);
  channel?.postMessage({ state: "out", id } satisfies SessionMessage);
}

/** Marks the user as signed out, because the server does not accept this browser's session. */
export function markSignedOut(): void {
  setSignedIn(false);
}

/** Returns the token in a fragment such as `#token=bf_admin_…`, or null. */
export function tokenInFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("token");
}

/** Returns the secret in a fragment such as `#invite=bf_invite_…`, or null. */
export function invitationInFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get("invite");
}

/** Removes the secret of an invitation from the address bar and the history, and keeps it in memory. */
function takeInvitation(): void {
  const secret = invitationInFragment(location.hash);
  if (secret === null) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  invitation = secret;
  for (const listener of listeners) listener();
}

/**
 * Removes the token of a link from the address bar and the history, and signs in with it. Returns whether it signed
 * in.
 */
async function signInWithUrlToken(): Promise<boolean> {
  const token = tokenInFragment(location.hash);
  if (token === null) return false;
  history.replaceState(history.state, "", location.pathname + location.search);
  return signIn(token, true).then(
    () => true,
    () => false,
  );
}

async function readCaller(response: Response): Promise<Me | undefined> {
  return (await response.json().catch(() => undefined)) as Me | undefined;
}

/**
 * Returns whether there is a session. An unreachable server counts as a session: it is no reason to ask for a token.
 */
async function hasSession(): Promise<boolean> {
  const response = await fetch("/api/v1/me").catch(() => null);
  caller = response?.ok ? await readCaller(response) : undefined;
  return response?.status !== 401 && response?.status !== 403;
}

/** Initializes the session. Must be called once, before the first render. */
export async function initSession(): Promise<void> {
  takeInvitation();
  takeLoginError();
  addEventListener("hashchange", () => {
    takeInvitation();
    void signInWithUrlToken();
  });
  channel?.addEventListener("message", ({ data }: MessageEvent<SessionMessage>) => {
    adoptSession(data.id);
    // Another user may have signed in.
    caller = undefined;
    setSignedIn(data.state === "in");
  });
  if ((await signInWithUrlToken()) || !(await hasSession())) return;
  // The other tabs learn of a login at the provider here.
  if (comesFromProvider() && caller !== undefined && loginError === null) begin(caller);
  else setSignedIn(true);
}
