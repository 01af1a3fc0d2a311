/**
 * The event streams of a browser, shared by its tabs.
 *
 * Over HTTP/1.1 a browser opens at most six connections to a server, for all tabs together, and a stream occupies one
 * of them permanently. So the {@link Hub} opens each shared stream once ({@link FEED}), follows at most {@link
 * FOLLOWED_LOGS_MAX} logs with streams of their own, and polls further logs.
 *
 * It runs in a shared worker, or in the page if the browser has no shared workers.
 *
 * # Invariants
 * - The hub has at most `1 + FOLLOWED_LOGS_MAX` streams open, for any number of tabs.
 * - A stream without readers is closed.
 * - All streams belong to one session, the newest that a tab has named. Streams of an older session are closed,
 *   including those of unresponsive tabs. Each tab whose streams were closed, or that named an older session,
 *   receives the newest session.
 * - A tab receives `resumed` only if it has missed no event since the id that it named.
 */

import { CSRF_HEADERS } from "./csrf";
import { ApiError } from "./errors";
import type { FieldError, LogPage } from "./schema";
import { isNewerSession } from "./sessions";
import { type StreamHandlers, follow, isFinal, pause, type ServerEvent } from "./sse";

/** Interval of the pings that the hub sends to its tabs. */
export const PING_INTERVAL_MS = 15_000;
/** The stream that all tabs share. */
export const FEED = "/api/v1/events";
export const FOLLOWED_LOGS_MAX = 2;
/** Poll interval of a log without a stream of its own. */
const POLL_INTERVAL_MS = 2_000;
/**
 * Size from which a page of a log counts as large, so that the next page is read at once. The server ends a page
 * after 4 MiB or 10,000 entries.
 */
const LARGE_PAGE_BYTES = 1024 * 1024;
const LARGE_PAGE_ENTRIES = 5_000;
/** Recent events of the feed that are buffered for returning tabs. */
const BUFFERED_EVENTS_MAX = 2_000;

/**
 * Message from a page to the hub. `id` is the page's own number of a stream, `session` the current session of the
 * browser.
 */
export type HubRequest =
  | { type: "open"; id: number; path: string; lastId: string; session: string }
  | { type: "close"; id: number }
  | { type: "session"; session: string };

/** An {@link ApiError} in a form that can be posted between threads: structured cloning drops the fields of errors. */
export interface SerializedError {
  code: string;
  status: number;
  detail: string;
  hint: string | null;
  instance: string | null;
  fields: readonly FieldError[];
}

/** Message from the hub to a page. */
export type HubMessage = PageMessage | StreamMessage;

/**
 * `session`: the current session of the browser. The hub has closed all streams of the page, and the page must reopen
 * them. `ping`: the hub is alive.
 */
type PageMessage = { type: "session"; session: string } | { type: "ping" };

/** Message about one of the page's streams. */
type StreamMessage = { id: number } & (
  | { type: "opened"; resumed: boolean; since: number }
  | { type: "events"; events: readonly ServerEvent[] }
  | { type: "lost"; error: SerializedError }
  | { type: "refused"; error: SerializedError }
);

export function serializeError(error: ApiError): SerializedError {
  const { code, status, message, hint, instance, fields } = error;
  return { code, status, detail: message, hint, instance, fields };
}

export function deserializeError({
  code,
  status,
  detail,
  hint,
  instance,
  fields,
}: SerializedError): ApiError {
  return new ApiError(code, status, detail, { hint, instance, fields });
}

/** Follows a path, by a stream or by polling, until the returned function is called. */
type Follow = (path: string, handlers: StreamHandlers, lastId: string) => () => void;

type Post = (message: HubMessage) => void;

/** A connected tab, with a function that closes each of its streams. */
interface Tab {
  post: Post;
  open: Map<number, () => void>;
}

interface Reader {
  post: Post;
  id: number;
}

/** A log that one tab follows. */
interface FollowedLog {
  path: string;
  reader: Reader;
  lastId: string;
  mode: "stream" | "polling";
  stop: () => void;
}

export class Hub {
  readonly #stream: Follow;
  readonly #poll: Follow;
  #session: string | null = null;
  #feed: SharedStream;
  readonly #logs = new Set<FollowedLog>();
  readonly #tabs = new Set<Tab>();

  constructor(stream: Follow = follow, poll: Follow = pollLog) {
    this.#stream = stream;
    this.#poll = poll;
    this.#feed = new SharedStream(FEED, stream);
  }

  /** Connects a page; the hub sends messages to it with `post`. */
  connect(post: Post): { receive: (message: HubRequest) => void; disconnect: () => void } {
    const tab: Tab = { post, open: new Map() };
    this.#tabs.add(tab);
    const close = (id: number) => {
      tab.open.get(id)?.();
      tab.open.delete(id);
    };
    return {
      receive: (message) => {
        if (message.type === "session") return void this.#enterSession(message.session, tab);
        close(message.id);
        if (message.type === "close") return;
        const { id, path, lastId, session } = message;
        if (!this.#enterSession(session, tab)) return;
        const reader = { post, id };
        const end = path === FEED ? this.#feed.join(reader, lastId) : this.#follow(path, reader, lastId);
        tab.open.set(id, end);
      },
      disconnect: () => {
        this.#tabs.delete(tab);
        [...tab.open.keys()].forEach(close);
      },
    };
  }

  /** Sends a ping to all pages. */
  ping(): void {
    for (const { post } of this.#tabs) post({ type: "ping" });
  }

  /**
   * Switches to the session that `tab` has named, if it is newer: closes the streams of the previous session and
   * notifies the affected tabs. Returns whether the hub is in that session; if not, the tab receives the newer one.
   */
  #enterSession(session: string, tab: Tab): boolean {
    if (this.#session === session) return true;
    if (this.#session !== null && isNewerSession(this.#session, session)) {
      tab.post({ type: "session", session: this.#session });
      return false;
    }
    this.#session = session;
    this.#feed.end();
    this.#feed = new SharedStream(FEED, this.#stream);
    for (const log of this.#logs) log.stop();
    this.#logs.clear();
    const affected = [...this.#tabs].filter(({ open }) => open.size > 0);
    for (const { open } of affected) open.clear();
    // `tab` itself knows the session and reopens its streams.
    for (const { post } of affected.filter((each) => each !== tab)) post({ type: "session", session });
    return true;
  }

  #follow(path: string, reader: Reader, lastId: string): () => void {
    const log: FollowedLog = { path, reader, lastId, mode: "polling", stop: () => undefined };
    this.#logs.add(log);
    this.#start(log);
    return () => this.#end(log);
  }

  #start(log: FollowedLog): void {
    const { post, id } = log.reader;
    const streams = [...this.#logs].filter((each) => each !== log && each.mode === "stream").length;
    log.mode = streams < FOLLOWED_LOGS_MAX ? "stream" : "polling";
    const start = log.mode === "stream" ? this.#stream : this.#poll;
    log.stop = start(
      log.path,
      {
        onOpen: (resumed, since) => post({ id, type: "opened", resumed, since }),
        onEvents: (events) => {
          log.lastId = events.at(-1)?.id ?? log.lastId;
          post({ id, type: "events", events });
          if (events.some(({ name }) => name === "end")) this.#end(log);
        },
        onLost: (error) => post({ id, type: "lost", error: serializeError(error) }),
        onRefused: (error) => {
          post({ id, type: "refused", error: serializeError(error) });
          this.#end(log);
        },
      },
      log.lastId,
    );
  }

  /** Stops following a log; a freed stream goes to the log that has been polled longest. */
  #end(log: FollowedLog): void {
    log.stop();
    if (!this.#logs.delete(log) || log.mode === "polling") return;
    const next = [...this.#logs].find(({ mode }) => mode === "polling");
    if (!next) return;
    next.stop();
    this.#start(next);
  }
}

/** A stream with any number of readers. */
class SharedStream {
  readonly #path: string;
  readonly #follow: Follow;
  /** Readers; the value is true while a reader has missed no event. */
  readonly #readers = new Map<Reader, boolean>();
  #stop: (() => void) | null = null;
  #state: { type: "opening" } | { type: "opened" } | { type: "lost"; error: SerializedError } = {
    type: "opening",
  };
  /** Recent events. A reader whose last id is among them has missed only the events after it. */
  #buffer: ServerEvent[] = [];

  constructor(path: string, follow: Follow) {
    this.#path = path;
    this.#follow = follow;
  }

  join(reader: Reader, lastId: string): () => void {
    const { post, id } = reader;
    if (!this.#stop) {
      this.#readers.set(reader, lastId !== "");
      this.#start(lastId);
    } else if (this.#state.type === "opened") {
      this.#readers.set(reader, true);
      const index = lastId === "" ? -1 : this.#buffer.findLastIndex((event) => event.id === lastId);
      const missed = this.#buffer.slice(index + 1);
      post({ id, type: "opened", resumed: index >= 0, since: Date.now() });
      if (index >= 0 && missed.length > 0) post({ id, type: "events", events: missed });
    } else {
      this.#readers.set(reader, false);
      if (this.#state.type === "lost") post({ id, type: "lost", error: this.#state.error });
    }
    return () => {
      this.#readers.delete(reader);
      if (this.#readers.size === 0) this.#end();
    };
  }

  /** Closes the stream for all readers. */
  end(): void {
    this.#readers.clear();
    this.#end();
  }

  #start(lastId: string): void {
    this.#state = { type: "opening" };
    this.#buffer = [];
    this.#stop = this.#follow(
      this.#path,
      {
        onOpen: (resumed, since) => {
          this.#state = { type: "opened" };
          for (const [{ post, id }, isCurrent] of this.#readers) {
            post({ id, type: "opened", resumed: resumed && isCurrent, since });
          }
          for (const reader of this.#readers.keys()) this.#readers.set(reader, true);
        },
        onEvents: (events) => {
          this.#buffer = [...this.#buffer, ...events].slice(-BUFFERED_EVENTS_MAX);
          for (const { post, id } of this.#readers.keys()) post({ id, type: "events", events });
        },
        onLost: (error) => {
          const lost = { type: "lost", error: serializeError(error) } as const;
          this.#state = lost;
          for (const { post, id } of this.#readers.keys()) post({ id, ...lost });
        },
        onRefused: (error) => {
          for (const { post, id } of this.#readers.keys())
            post({ id, type: "refused", error: serializeError(error) });
          this.#readers.clear();
          this.#end();
        },
      },
      lastId,
    );
  }

  #end(): void {
    this.#stop?.();
    this.#stop = null;
  }
}

/** Polls a log; the connection is in use only while a response is read. */
export function pollLog(path: string, handlers: StreamHandlers, lastId: string): () => void {
  const ended = new AbortController();
  void pollUntilEnd(path, handlers, lastId, ended.signal);
  return () => ended.abort();
}

async function pollUntilEnd(
  path: string,
  handlers: StreamHandlers,
  from: string,
  ended: AbortSignal,
): Promise<void> {
  let lastId = from;
  while (!ended.aborted) {
    let isLarge = false;
    try {
      const page = await readPage(path, lastId, ended);
      if (ended.aborted) return;
      handlers.onOpen?.(lastId !== "", Date.now());
      const events: ServerEvent[] = page.items.map((entry) => ({
        name: "log",
        data: JSON.stringify(entry),
        id: String(entry.next_offset),
      }));
      const start = Number(lastId || new URLSearchParams(path.split("?", 2)[1]).get("offset"));
      isLarge =
        page.next_offset - start >= LARGE_PAGE_BYTES ||
        (page.next_offset > start && page.items.length >= LARGE_PAGE_ENTRIES);
      lastId = String(page.next_offset);
      if (page.complete) events.push({ name: "end", data: "", id: lastId });
      if (events.length > 0) handlers.onEvents(events);
      if (page.complete) return;
    } catch (error) {
      if (ended.aborted) return;
      const apiError = ApiError.from(error);
      if (isFinal(apiError)) return handlers.onRefused?.(apiError);
      handlers.onLost?.(apiError);
    }
    if (!isLarge) await pause(POLL_INTERVAL_MS, ended);
  }
}

/** Returns the entries of a log after `lastId`, an offset; from the offset of the path if it is empty. */
async function readPage(path: string, lastId: string, signal: AbortSignal): Promise<LogPage> {
  const [address, query] = path.split("?", 2);
  const parameters = new URLSearchParams(query);
  parameters.delete("follow");
  if (lastId !== "") parameters.set("offset", lastId);
  const headers = { ...CSRF_HEADERS, accept: "application/json" };
  const response = await fetch(`${address}?${parameters}`, { headers, signal, cache: "no-store" });
  if (!response.ok) throw await ApiError.ofResponse(response);
  return (await response.json()) as LogPage;
}
