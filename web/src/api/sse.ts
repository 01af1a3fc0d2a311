/**
 * Server-sent events over `fetch`, because `EventSource` cannot be told where to resume, or why it was refused.
 *
 * A {@link follow}ed stream resumes from the last id that was seen, so that no event is missed or received
 * twice when the connection is lost. It ends after the server's event `end`, or when the server refuses it.
 *
 * This module runs in a page and in a shared worker, so it knows nothing of either.
 */

import { OWN_PAGE } from "./ownPage";
import { isTakeOver, Refusal } from "./problem";

export interface ServerEvent {
  /** Its name; `message` where the server gave none. */
  name: string;
  data: string;
  id: string;
}

/** Takes the text of a stream apart, in whatever pieces it comes. */
export class Parser {
  #rest = "";
  #name = "";
  #data: string[] = [];
  #id: string;

  constructor(id = "") {
    this.#id = id;
  }

  /** The place of the newest line with an id, also of a heartbeat. */
  get lastId(): string {
    return this.#id;
  }

  push(text: string): ServerEvent[] {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length > 0) {
          events.push({ name: this.#name || "message", data: this.#data.join("\n"), id: this.#id });
        }
        this.#name = "";
        this.#data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") this.#name = value;
      else if (field === "data") this.#data.push(value);
      else if (field === "id") this.#id = value;
    }
    return events;
  }
}

export interface Followed {
  /** What came, in order; never empty. */
  onEvents: (events: ServerEvent[]) => void;
  /**
   * The stream is there; `resumed` if it goes on exactly where an earlier one was lost. Every event after
   * `since`, by this machine's clock, is in it.
   */
  onOpen?: (resumed: boolean, since: number) => void;
  /** The stream was lost, and is tried again after a while. */
  onLost?: (why: Refusal) => void;
  /** The stream will not be tried again: the server refused it for good. */
  onRefused?: (why: Refusal) => void;
}

/** The server sends something at least every 15 s; after this it is taken for gone. */
const SILENCE_MAX_MS = 40_000;
/**
 * A server that waits for the next leader may open a stream and end it at once. One that lasts so long, or has
 * told something, is taken for open.
 */
const SETTLED_AFTER_MS = 250;
const WAIT_MIN_MS = 400;
const WAIT_MAX_MS = 8_000;
/** Who leads is settled within a few seconds, and everybody waits for it. */
const TAKE_OVER_WAIT_MAX_MS = 1_000;

/** Whether these contain the server's word that a stream is over. */
export function isOver(events: readonly ServerEvent[]): boolean {
  return events.some(({ name }) => name === "end");
}

/** Follows a stream, behind `lastId` if there is one, until the returned function is called or it is over. */
export function follow(path: string, followed: Followed, lastId = ""): () => void {
  const ended = new AbortController();
  void run(path, followed, lastId, ended);
  return () => ended.abort();
}

async function run(path: string, followed: Followed, from: string, ended: AbortController): Promise<void> {
  let lastId = from;
  let wait = WAIT_MIN_MS;
  let waitMax = WAIT_MAX_MS;
  while (!ended.signal.aborted) {
    const parser = new Parser(lastId);
    try {
      const over = await readOnce(path, parser, followed, ended.signal, () => (wait = WAIT_MIN_MS));
      if (over || ended.signal.aborted) return;
      waitMax = WAIT_MAX_MS;
      followed.onLost?.(new Refusal("stream_ended", 0, "the server ended the stream"));
    } catch (error) {
      if (ended.signal.aborted) return;
      const why = Refusal.from(error);
      if (isFinal(why)) return followed.onRefused?.(why);
      waitMax = isTakeOver(why) ? TAKE_OVER_WAIT_MAX_MS : WAIT_MAX_MS;
      followed.onLost?.(why);
    }
    lastId = parser.lastId;
    wait = Math.min(wait, waitMax);
    await pause(wait + Math.random() * wait * 0.3, ended.signal);
    wait *= 1.8;
  }
}

/** Whether the same request would be refused again. */
export function isFinal({ status }: Refusal): boolean {
  return status >= 400 && status < 500 && status !== 429;
}

async function readOnce(
  path: string,
  parser: Parser,
  followed: Followed,
  ended: AbortSignal,
  onAlive: () => void,
): Promise<boolean> {
  const silent = new AbortController();
  const signal = AbortSignal.any([ended, silent.signal]);
  let alarm = setTimeout(() => silent.abort(), SILENCE_MAX_MS);
  let settling: ReturnType<typeof setTimeout> | undefined;
  let isOpen = false;
  let since = Date.now();
  const resumes = parser.lastId !== "";
  const settle = () => {
    clearTimeout(settling);
    if (isOpen || signal.aborted) return;
    isOpen = true;
    onAlive();
    followed.onOpen?.(resumes, since);
  };
  try {
    const headers: Record<string, string> = { ...OWN_PAGE, accept: "text/event-stream" };
    if (resumes) headers["last-event-id"] = parser.lastId;
    const response = await fetch(path, { headers, signal, cache: "no-store" });
    if (!response.ok) throw await Refusal.ofResponse(response);
    since = Date.now();
    settling = setTimeout(settle, SETTLED_AFTER_MS);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) {
        if (isOpen) return false;
        throw new Refusal("loading", 503, "the server ended the stream at once");
      }
      clearTimeout(alarm);
      alarm = setTimeout(() => silent.abort(), SILENCE_MAX_MS);
      const events = parser.push(part.value);
      if (events.length === 0) continue;
      settle();
      if (ended.aborted) return false;
      followed.onEvents(events);
      if (isOver(events)) return true;
    }
  } catch (error) {
    if (silent.signal.aborted) throw new Refusal("silent", 0, "nothing came for too long");
    if (error instanceof DOMException) throw new Refusal("unreachable", 0, error.message);
    throw error;
  } finally {
    clearTimeout(alarm);
    clearTimeout(settling);
    silent.abort();
  }
}

/** Waits, but not longer than until the browser says that it is online again. */
export function pause(ms: number, ended: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      ended.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    ended.addEventListener("abort", done);
  });
}
