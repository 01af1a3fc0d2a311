/**
 * The streams of this page, through the browser's {@link Hub}.
 *
 * A hidden page closes its streams after a while, and reopens them when it is shown. A feed that is held stays open. A stream resumes after the last
 * event that the page has received, if possible.
 */

import { adoptSession, onSessionChange, sessionId, markForbidden, markSignedOut } from "./auth";
import { FEED, type HubMessage, Hub, deserializeError, type HubRequest } from "./hub";
import type { ApiError } from "./errors";
import type { StreamHandlers, ServerEvent } from "./sse";

/** A page closes its streams after being hidden for this time. */
const HIDDEN_MAX_MS = 10_000;
/** The same for a shared feed: the title of a hidden tab counts failures. */
const HIDDEN_FEED_MAX_MS = 600_000;
/** After this time, refetching the displayed data is cheaper than receiving all missed events. */
const MISSED_MAX_MS = 60_000;

/**
 * The hub in a shared worker sends a ping every 15 s. After 45 s without one, the browser has ended the worker; there
 * is no other notification of that.
 */
const CHECK_EVERY_MS = 5_000;
const SILENT_CHECKS_MAX = 9;

interface Stream {
  path: string;
  handlers: StreamHandlers;
  lastId: string;
  isOpen: boolean;
}

interface HubConnection {
  post: (message: HubRequest) => void;
}

const streams = new Map<number, Stream>();
let lastId = 0;
let hubConnection: HubConnection | null = null;
/** Whether the hub belongs to this page and is not shared by tabs. */
let hasOwnHub = false;
/** Timers that close the streams of a hidden page; empty while it is shown. */
let hiddenTimers: Array<ReturnType<typeof setTimeout>> = [];
/** When the feed and the other streams were closed because the page is hidden, in ms since the epoch. */
const closedSince: { feed: number | null; other: number | null } = { feed: null, other: null };

/** Number of holders that need the feed although the page is hidden. */
let feedHolders = 0;
/** Whether the feed would be closed by now if it had no holder. */
let isFeedOverdue = false;

const kindOf = ({ path }: { path: string }) => (path === FEED ? "feed" : "other");

/** Follows a stream until the returned function is called, the stream ends, or the server refuses it. */
export function follow(path: string, handlers: StreamHandlers): () => void {
  lastId += 1;
  const id = lastId;
  const stream = { path, handlers, lastId: "", isOpen: false };
  streams.set(id, stream);
  if (closedSince[kindOf(stream)] === null) openStream(id, stream);
  return () => {
    if (streams.delete(id) && stream.isOpen) hubConnection?.post({ type: "close", id });
  };
}

function openStream(id: number, stream: Stream): void {
  stream.isOpen = true;
  if (!hubConnection) {
    hubConnection = connect();
    // Also needed if no page opens another stream: an ended session must not be read any more.
    onSessionChange(() => hubConnection?.post({ type: "session", session: sessionId() }));
  }
  hubConnection.post({ type: "open", id, path: stream.path, lastId: stream.lastId, session: sessionId() });
}

function connect(): HubConnection {
  if (typeof SharedWorker === "undefined") return connectOwnHub();
  try {
    // The bundler needs the complete URL expression here.
    const worker = new SharedWorker(new URL("./streams.worker.ts", import.meta.url), {
      type: "module",
      name: "belfry-streams",
    });
    const shared: HubConnection = { post: (message) => worker.port.postMessage(message) };
    let hasReceived = false;
    let silentChecks = 0;
    const replace = (next: () => HubConnection) => {
      clearInterval(watch);
      if (hubConnection !== shared) return;
      // Received only if the worker is still alive.
      for (const id of streams.keys()) shared.post({ type: "close", id });
      worker.port.onmessage = null;
      worker.port.close();
      hubConnection = next();
      reopenStreams();
    };
    // Counted in checks, not by the clock: after sleep of the machine the worker is not silent.
    const watch = setInterval(() => {
      silentChecks = document.hidden ? 0 : silentChecks + 1;
      if (silentChecks >= SILENT_CHECKS_MAX) replace(hasReceived ? connect : connectOwnHub);
    }, CHECK_EVERY_MS);
    worker.port.onmessage = ({ data }: MessageEvent<HubMessage>) => {
      hasReceived = true;
      silentChecks = 0;
      receive(data);
    };
    // The worker's script could not be loaded: this page reads its streams itself.
    worker.onerror = () => replace(connectOwnHub);
    return shared;
  } catch {
    return connectOwnHub();
  }
}

/** Connects to a hub in this page. */
function connectOwnHub(): HubConnection {
  hasOwnHub = true;
  if (hiddenTimers.length > 0) {
    // Hidden while the hub was shared: the feed must now be closed sooner.
    hiddenTimers.forEach(clearTimeout);
    hiddenTimers = [];
    onHidden();
  }
  const page = new Hub().connect(receive);
  return { post: page.receive };
}

/**
 * Reopens the streams that the hub has closed. The feed starts without an id, because missed events are unknown; all
 * data is read again.
 */
function reopenStreams(): void {
  for (const [id, stream] of streams) {
    if (!stream.isOpen) continue;
    if (stream.path === FEED) stream.lastId = "";
    openStream(id, stream);
  }
}

function receive(message: HubMessage): void {
  if (message.type === "ping") return;
  if (message.type === "session") {
    adoptSession(message.session);
    return reopenStreams();
  }
  const stream = streams.get(message.id);
  if (!stream?.isOpen) return;
  const { handlers } = stream;
  switch (message.type) {
    case "opened":
      return handlers.onOpen?.(message.resumed, message.since);
    case "events":
      return receiveEvents(message.id, stream, [...message.events]);
    case "lost":
      return handlers.onLost?.(deserializeError(message.error));
    case "refused":
      streams.delete(message.id);
      return handleRefused(handlers, deserializeError(message.error));
  }
}

function receiveEvents(id: number, stream: Stream, events: ServerEvent[]): void {
  stream.lastId = events.at(-1)?.id ?? stream.lastId;
  if (events.some(({ name }) => name === "end")) streams.delete(id);
  stream.handlers.onEvents(events);
}

function handleRefused(handlers: StreamHandlers, error: ApiError): void {
  if (error.status === 401) markSignedOut();
  if (error.status === 403) markForbidden();
  handlers.onRefused?.(error);
}

function closeStreams(kind: keyof typeof closedSince): void {
  closedSince[kind] ??= Date.now();
  for (const [id, stream] of streams) {
    if (!stream.isOpen || kindOf(stream) !== kind) continue;
    hubConnection?.post({ type: "close", id });
    stream.isOpen = false;
  }
}

/** Keeps the feed open while the page is hidden, until the returned function is called. */
export function holdFeed(): () => void {
  feedHolders += 1;
  return () => {
    feedHolders -= 1;
    if (feedHolders === 0 && isFeedOverdue) closeStreams("feed");
  };
}

function closeHiddenFeed(): void {
  isFeedOverdue = true;
  if (feedHolders === 0) closeStreams("feed");
}

function onHidden(): void {
  if (hiddenTimers.length > 0) return;
  const feedMax = hasOwnHub ? HIDDEN_MAX_MS : HIDDEN_FEED_MAX_MS;
  hiddenTimers = [setTimeout(closeStreams, HIDDEN_MAX_MS, "other"), setTimeout(closeHiddenFeed, feedMax)];
}

function onShown(): void {
  hiddenTimers.forEach(clearTimeout);
  hiddenTimers = [];
  isFeedOverdue = false;
  const isLong = Date.now() - (closedSince.feed ?? Date.now()) > MISSED_MAX_MS;
  closedSince.feed = closedSince.other = null;
  for (const [id, stream] of streams) {
    if (stream.isOpen) continue;
    if (isLong && stream.path === FEED) stream.lastId = "";
    openStream(id, stream);
  }
}

/** Closes and reopens the streams with the visibility of the page. Must be called once. */
export function watchVisibility(): void {
  const onChange = () => (document.hidden ? onHidden() : onShown());
  const onEnd = () => {
    closeStreams("other");
    closeStreams("feed");
  };
  document.addEventListener("visibilitychange", onChange);
  // The browser freezes a page that has been hidden for long; messages to it would only accumulate.
  document.addEventListener("freeze", onEnd);
  addEventListener("pagehide", onEnd);
  addEventListener("pageshow", onChange);
  onChange();
}
