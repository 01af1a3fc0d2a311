/**
 * The streams that this page reads, through the browser's {@link Hub}.
 *
 * A hidden page closes its streams after a while, and opens them again when it is shown. A stream continues
 * behind the last event that the page has received, if that is possible.
 */

import { learnSession, onSignChange, sessionId, signedOut } from "./auth";
import { FEED, type FromHub, Hub, received, type ToHub } from "./hub";
import type { Refusal } from "./problem";
import type { Followed, ServerEvent } from "./sse";

/** A page that is hidden for so long closes its streams. */
const HIDDEN_MAX_MS = 10_000;
/** The same for the feed where tabs share it: the title of a hidden tab counts failures. */
const HIDDEN_FEED_MAX_MS = 600_000;
/** After so long it is less work to read what is shown again than to receive all events since. */
const MISSED_MAX_MS = 60_000;

/**
 * The hub in a shared worker says something every 15 s. After 45 s without a word the browser has ended the worker, and
 * nothing else tells the page so.
 */
const CHECK_EVERY_MS = 5_000;
const SILENT_CHECKS_MAX = 9;

interface Stream {
  path: string;
  followed: Followed;
  lastId: string;
  isOpen: boolean;
}

interface Line {
  post: (message: ToHub) => void;
}

const streams = new Map<number, Stream>();
let lastNumber = 0;
let line: Line | null = null;
/** Whether the hub is this page's own, not one that tabs share. */
let hasOwnHub = false;
/** What closes the streams of a hidden page; empty while it is shown. */
let hiding: Array<ReturnType<typeof setTimeout>> = [];
/** Since when the feed and the other streams are closed, because nobody sees the page. */
const closedSince: { feed: number | null; other: number | null } = { feed: null, other: null };

const kindOf = ({ path }: { path: string }) => (path === FEED ? "feed" : "other");

/** Follows a stream until the returned function is called, it is over, or the server refuses it. */
export function follow(path: string, followed: Followed): () => void {
  lastNumber += 1;
  const id = lastNumber;
  const stream = { path, followed, lastId: "", isOpen: false };
  streams.set(id, stream);
  if (closedSince[kindOf(stream)] === null) open(id, stream);
  return () => {
    if (streams.delete(id) && stream.isOpen) line?.post({ type: "close", id });
  };
}

function open(id: number, stream: Stream): void {
  stream.isOpen = true;
  if (!line) {
    line = connect();
    // Also where no page opens a stream again: nothing more is read for a session that is over.
    onSignChange(() => line?.post({ type: "session", session: sessionId() }));
  }
  line.post({ type: "open", id, path: stream.path, lastId: stream.lastId, session: sessionId() });
}

function connect(): Line {
  if (typeof SharedWorker === "undefined") return own();
  try {
    // Its address has to stand here as a whole, so that the build finds it.
    const worker = new SharedWorker(new URL("./streams.worker.ts", import.meta.url), {
      type: "module",
      name: "belfry-streams",
    });
    const shared: Line = { post: (message) => worker.port.postMessage(message) };
    let hasSpoken = false;
    let silentChecks = 0;
    const replace = (next: () => Line) => {
      clearInterval(watch);
      if (line !== shared) return;
      // Heard only if it is alive after all.
      for (const id of streams.keys()) shared.post({ type: "close", id });
      worker.port.onmessage = null;
      worker.port.close();
      line = next();
      openAgain();
    };
    // In checks, not by the clock: a machine that slept is not a worker that was silent.
    const watch = setInterval(() => {
      silentChecks = document.hidden ? 0 : silentChecks + 1;
      if (silentChecks >= SILENT_CHECKS_MAX) replace(hasSpoken ? connect : own);
    }, CHECK_EVERY_MS);
    worker.port.onmessage = ({ data }: MessageEvent<FromHub>) => {
      hasSpoken = true;
      silentChecks = 0;
      take(data);
    };
    // Its script could not be had: this page reads its streams itself.
    worker.onerror = () => replace(own);
    return shared;
  } catch {
    return own();
  }
}

/** A hub for this page alone. */
function own(): Line {
  hasOwnHub = true;
  if (hiding.length > 0) {
    // Hidden with a hub that tabs share: the feed is closed sooner now.
    hiding.forEach(clearTimeout);
    hiding = [];
    hide();
  }
  const page = new Hub().connect(take);
  return { post: page.take };
}

/** Opens again what the hub no longer has open. What the feed has missed may be anything: all is read again. */
function openAgain(): void {
  for (const [id, stream] of streams) {
    if (!stream.isOpen) continue;
    if (stream.path === FEED) stream.lastId = "";
    open(id, stream);
  }
}

function take(message: FromHub): void {
  if (message.type === "ping") return;
  if (message.type === "session") {
    learnSession(message.session);
    return openAgain();
  }
  const stream = streams.get(message.id);
  if (!stream?.isOpen) return;
  const { followed } = stream;
  switch (message.type) {
    case "opened":
      return followed.onOpen?.(message.resumed, message.since);
    case "events":
      return takeEvents(message.id, stream, [...message.events]);
    case "lost":
      return followed.onLost?.(received(message.why));
    case "refused":
      streams.delete(message.id);
      return refuse(followed, received(message.why));
  }
}

function takeEvents(id: number, stream: Stream, events: ServerEvent[]): void {
  stream.lastId = events.at(-1)?.id ?? stream.lastId;
  if (events.some(({ name }) => name === "end")) streams.delete(id);
  stream.followed.onEvents(events);
}

function refuse(followed: Followed, why: Refusal): void {
  if (why.status === 401) signedOut();
  followed.onRefused?.(why);
}

function close(kind: keyof typeof closedSince): void {
  closedSince[kind] ??= Date.now();
  for (const [id, stream] of streams) {
    if (!stream.isOpen || kindOf(stream) !== kind) continue;
    line?.post({ type: "close", id });
    stream.isOpen = false;
  }
}

function hide(): void {
  if (hiding.length > 0) return;
  const feedMax = hasOwnHub ? HIDDEN_MAX_MS : HIDDEN_FEED_MAX_MS;
  hiding = [setTimeout(close, HIDDEN_MAX_MS, "other"), setTimeout(close, feedMax, "feed")];
}

function comeBack(): void {
  hiding.forEach(clearTimeout);
  hiding = [];
  const isLong = Date.now() - (closedSince.feed ?? Date.now()) > MISSED_MAX_MS;
  closedSince.feed = closedSince.other = null;
  for (const [id, stream] of streams) {
    if (stream.isOpen) continue;
    if (isLong && stream.path === FEED) stream.lastId = "";
    open(id, stream);
  }
}

/** To be called once: streams follow whether the page can be seen. */
export function watchVisibility(): void {
  const onChange = () => (document.hidden ? hide() : comeBack());
  const onEnd = () => {
    close("other");
    close("feed");
  };
  document.addEventListener("visibilitychange", onChange);
  // The browser halts a page that is long hidden: what is sent to it would only heap up.
  document.addEventListener("freeze", onEnd);
  addEventListener("pagehide", onEnd);
  addEventListener("pageshow", onChange);
  onChange();
}
