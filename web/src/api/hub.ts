/**
 * The event streams of a browser, shared by its tabs.
 *
 * Over HTTP/1.1 a browser opens six connections to a server, for all tabs together, and a stream occupies one
 * of them for good. So the {@link Hub} opens each stream that tabs have in common once ({@link FEED}), follows
 * at most {@link FOLLOWED_LOGS_MAX} logs by streams of their own, and reads further logs in intervals.
 *
 * It runs in a shared worker, or in the page where a browser has no shared workers.
 *
 * # Always true
 * - The hub has at most `1 + FOLLOWED_LOGS_MAX` streams open, however many tabs there are.
 * - A stream that no tab reads is closed.
 * - All streams are of one session, the newest that a tab has named: those of an older one are closed, also of a tab
 *   that does not answer. Each tab whose streams were closed, or that named an older session, is told the newest.
 * - A tab is told `resumed` only if it has missed nothing since the id that it named.
 */

import { OWN_PAGE } from "./ownPage";
import { Refusal } from "./problem";
import type { FieldError, LogPage } from "./schema";
import { isNewerSession } from "./sessions";
import { type Followed, follow, isFinal, pause, type ServerEvent } from "./sse";

/** How often the hub tells its tabs that it is alive. */
export const PING_EVERY_MS = 15_000;
/** The stream that all tabs share. */
export const FEED = "/api/v1/events";
export const FOLLOWED_LOGS_MAX = 2;
/** How often a log is read that has no stream of its own. */
const READ_EVERY_MS = 2_000;
/**
 * A page of a log with so many bytes or entries is large: the log is read on at once. The server ends a page after 4 MiB
 * or 10,000 entries.
 */
const LARGE_PAGE_BYTES = 1024 * 1024;
const LARGE_PAGE_ENTRIES = 5_000;
/** As many of the feed's newest events are kept for tabs that come back. */
const KEPT_EVENTS = 2_000;

/**
 * What a page asks of the hub. `id` is the page's own number of a stream, `session` the session that the browser is in
 * now.
 */
export type ToHub =
  | { type: "open"; id: number; path: string; lastId: string; session: string }
  | { type: "close"; id: number }
  | { type: "session"; session: string };

/** A {@link Refusal} as it is sent between threads, which keep no fields of errors. */
export interface SentRefusal {
  code: string;
  status: number;
  detail: string;
  hint: string | null;
  instance: string | null;
  fields: readonly FieldError[];
}

/** What the hub tells a page. */
export type FromHub = ToPage | ToStream;

/**
 * `session`: the browser is in that session, and the hub has no stream of the page open; the page opens its streams
 * again. `ping`: the hub is alive.
 */
type ToPage = { type: "session"; session: string } | { type: "ping" };

/** About one of the streams of the page. */
type ToStream = { id: number } & (
  | { type: "opened"; resumed: boolean; since: number }
  | { type: "events"; events: readonly ServerEvent[] }
  | { type: "lost"; why: SentRefusal }
  | { type: "refused"; why: SentRefusal }
);

export function sent(refusal: Refusal): SentRefusal {
  const { code, status, message, hint, instance, fields } = refusal;
  return { code, status, detail: message, hint, instance, fields };
}

export function received({ code, status, detail, hint, instance, fields }: SentRefusal): Refusal {
  return new Refusal(code, status, detail, { hint, instance, fields });
}

/** Follows a path in some way until the returned function is called. */
type Follow = (path: string, followed: Followed, lastId: string) => () => void;

type Post = (message: FromHub) => void;

/** A tab that is connected to the hub, with what closes each of its streams. */
interface Tab {
  post: Post;
  open: Map<number, () => void>;
}

interface Reader {
  post: Post;
  id: number;
}

/** The log that a tab follows. */
interface FollowedLog {
  path: string;
  reader: Reader;
  lastId: string;
  way: "stream" | "intervals";
  stop: () => void;
}

export class Hub {
  readonly #stream: Follow;
  readonly #read: Follow;
  #session: string | null = null;
  #feed: SharedStream;
  readonly #logs = new Set<FollowedLog>();
  readonly #tabs = new Set<Tab>();

  constructor(stream: Follow = follow, read: Follow = readInIntervals) {
    this.#stream = stream;
    this.#read = read;
    this.#feed = new SharedStream(FEED, stream);
  }

  /** Takes a page in; it is told by `post`. */
  connect(post: Post): { take: (message: ToHub) => void; leave: () => void } {
    const tab: Tab = { post, open: new Map() };
    this.#tabs.add(tab);
    const close = (id: number) => {
      tab.open.get(id)?.();
      tab.open.delete(id);
    };
    return {
      take: (message) => {
        if (message.type === "session") return void this.#enter(message.session, tab);
        close(message.id);
        if (message.type === "close") return;
        const { id, path, lastId, session } = message;
        if (!this.#enter(session, tab)) return;
        const reader = { post, id };
        const end = path === FEED ? this.#feed.join(reader, lastId) : this.#follow(path, reader, lastId);
        tab.open.set(id, end);
      },
      leave: () => {
        this.#tabs.delete(tab);
        [...tab.open.keys()].forEach(close);
      },
    };
  }

  /** Tells all pages that the hub is alive. */
  ping(): void {
    for (const { post } of this.#tabs) post({ type: "ping" });
  }

  /**
   * Enters the session that `tab` has named, if it is newer: closes the streams of the session before, and tells the
   * tabs that had any. Returns whether the hub is in the session; if not, the tab is told the newer one.
   */
  #enter(session: string, tab: Tab): boolean {
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
    const ended = [...this.#tabs].filter(({ open }) => open.size > 0);
    for (const { open } of ended) open.clear();
    // The tab itself knows, and opens its streams again.
    for (const { post } of ended.filter((each) => each !== tab)) post({ type: "session", session });
    return true;
  }

  #follow(path: string, reader: Reader, lastId: string): () => void {
    const log: FollowedLog = { path, reader, lastId, way: "intervals", stop: () => undefined };
    this.#logs.add(log);
    this.#start(log);
    return () => this.#end(log);
  }

  #start(log: FollowedLog): void {
    const { post, id } = log.reader;
    const streams = [...this.#logs].filter((each) => each !== log && each.way === "stream").length;
    log.way = streams < FOLLOWED_LOGS_MAX ? "stream" : "intervals";
    const start = log.way === "stream" ? this.#stream : this.#read;
    log.stop = start(
      log.path,
      {
        onOpen: (resumed, since) => post({ id, type: "opened", resumed, since }),
        onEvents: (events) => {
          log.lastId = events.at(-1)?.id ?? log.lastId;
          post({ id, type: "events", events });
          if (events.some(({ name }) => name === "end")) this.#end(log);
        },
        onLost: (why) => post({ id, type: "lost", why: sent(why) }),
        onRefused: (why) => {
          post({ id, type: "refused", why: sent(why) });
          this.#end(log);
        },
      },
      log.lastId,
    );
  }

  /** Ends a log; the one that has waited longest for a stream gets the free one. */
  #end(log: FollowedLog): void {
    log.stop();
    if (!this.#logs.delete(log) || log.way === "intervals") return;
    const next = [...this.#logs].find(({ way }) => way === "intervals");
    if (!next) return;
    next.stop();
    this.#start(next);
  }
}

/** A stream that any number of tabs read. */
class SharedStream {
  readonly #path: string;
  readonly #follow: Follow;
  /** Those that read it, with whether they have missed nothing so far. */
  readonly #readers = new Map<Reader, boolean>();
  #stop: (() => void) | null = null;
  #state: { type: "opening" } | { type: "opened" } | { type: "lost"; why: SentRefusal } = { type: "opening" };
  /** The newest events; a reader whose last id is among them has missed those behind it. */
  #kept: ServerEvent[] = [];

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
      const at = lastId === "" ? -1 : this.#kept.findLastIndex((event) => event.id === lastId);
      const missed = this.#kept.slice(at + 1);
      post({ id, type: "opened", resumed: at >= 0, since: Date.now() });
      if (at >= 0 && missed.length > 0) post({ id, type: "events", events: missed });
    } else {
      this.#readers.set(reader, false);
      if (this.#state.type === "lost") post({ id, type: "lost", why: this.#state.why });
    }
    return () => {
      this.#readers.delete(reader);
      if (this.#readers.size === 0) this.#end();
    };
  }

  /** Ends the stream for all of its readers. */
  end(): void {
    this.#readers.clear();
    this.#end();
  }

  #start(lastId: string): void {
    this.#state = { type: "opening" };
    this.#kept = [];
    this.#stop = this.#follow(
      this.#path,
      {
        onOpen: (resumed, since) => {
          this.#state = { type: "opened" };
          for (const [{ post, id }, missedNothing] of this.#readers) {
            post({ id, type: "opened", resumed: resumed && missedNothing, since });
          }
          for (const reader of this.#readers.keys()) this.#readers.set(reader, true);
        },
        onEvents: (events) => {
          this.#kept = [...this.#kept, ...events].slice(-KEPT_EVENTS);
          for (const { post, id } of this.#readers.keys()) post({ id, type: "events", events });
        },
        onLost: (why) => {
          const lost = { type: "lost", why: sent(why) } as const;
          this.#state = lost;
          for (const { post, id } of this.#readers.keys()) post({ id, ...lost });
        },
        onRefused: (why) => {
          for (const { post, id } of this.#readers.keys()) post({ id, type: "refused", why: sent(why) });
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

/** Reads a log again and again, with a connection for no longer than each answer takes. */
export function readInIntervals(path: string, followed: Followed, lastId: string): () => void {
  const ended = new AbortController();
  void keepReading(path, followed, lastId, ended.signal);
  return () => ended.abort();
}

async function keepReading(
  path: string,
  followed: Followed,
  from: string,
  ended: AbortSignal,
): Promise<void> {
  let lastId = from;
  while (!ended.aborted) {
    let isLarge = false;
    try {
      const page = await readPage(path, lastId, ended);
      if (ended.aborted) return;
      followed.onOpen?.(lastId !== "", Date.now());
      const events: ServerEvent[] = page.items.map((entry) => ({
        name: "log",
        data: JSON.stringify(entry),
        id: String(entry.next_offset),
      }));
      const begin = Number(lastId || new URLSearchParams(path.split("?", 2)[1]).get("offset"));
      isLarge =
        page.next_offset - begin >= LARGE_PAGE_BYTES ||
        (page.next_offset > begin && page.items.length >= LARGE_PAGE_ENTRIES);
      lastId = String(page.next_offset);
      if (page.complete) events.push({ name: "end", data: "", id: lastId });
      if (events.length > 0) followed.onEvents(events);
      if (page.complete) return;
    } catch (error) {
      if (ended.aborted) return;
      const why = Refusal.from(error);
      if (isFinal(why)) return followed.onRefused?.(why);
      followed.onLost?.(why);
    }
    if (!isLarge) await pause(READ_EVERY_MS, ended);
  }
}

/** What there is of a log behind a place. */
async function readPage(path: string, lastId: string, signal: AbortSignal): Promise<LogPage> {
  const [address, query] = path.split("?", 2);
  const asked = new URLSearchParams(query);
  asked.delete("follow");
  if (lastId !== "") asked.set("offset", lastId);
  const headers = { ...OWN_PAGE, accept: "application/json" };
  const response = await fetch(`${address}?${asked}`, { headers, signal, cache: "no-store" });
  if (!response.ok) throw await Refusal.ofResponse(response);
  return (await response.json()) as LogPage;
}
