/**
 * Server-sent events over `fetch`, because `EventSource` cannot be told where to resume, or why it was refused.
 *
 * A {@link follow}ed stream resumes from the last id that was seen, so that no event is missed or received
 * twice when the connection is lost. It ends after the server's event `end`, or when the server refuses it.
 *
 * This module runs in a page and in a shared worker, so it knows nothing of either.
 */

import { CSRF_HEADERS } from "./csrf";
import { isTakeover, ApiError } from "./errors";

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

export interface StreamHandlers {
  /** What came, in order; never empty. */
  onEvents: (events: ServerEvent[]) => void;
  /**
   * The stream is there; `resumed` if it goes on exactly where an earlier one was lost. Every event after
   * `since`, by this machine's clock, is in it.
   */
  onOpen?: (resumed: boolean, since: number) => void;
  /** The stream was lost, and is tried again after a while. */
  onLost?: (error: ApiError) => void;
  /** The stream will not be tried again: the server refused it for good. */
  onRefused?: (error: ApiError) => void;
}

/** The server sends something at least every 15 s; after this it is taken for gone. */
const SILENCE_MAX_MS = 40_000;
/**
 * A server that waits for the next leader may open a stream and end it at once. One that lasts so long, or has
 * told something, is taken for open.
 */
const OPEN_AFTER_MS = 250;
const RETRY_DELAY_MIN_MS = 400;
const RETRY_DELAY_MAX_MS = 8_000;
/** Who leads is settled within a few seconds, and everybody waits for it. */
const TAKEOVER_RETRY_DELAY_MAX_MS = 1_000;

/** Whether these contain the server's word that a stream is over. */
export function hasEnd(events: readonly ServerEvent[]): boolean {
  return events.some(({ name }) => name === "end");
}

/** Follows a stream, behind `lastId` if there is one, until the returned function is called or it is over. */
export function follow(path: string, handlers: StreamHandlers, lastId = ""): () => void {
  const ended = new AbortController();
  void followUntilEnd(path, handlers, lastId, ended);
  return () => ended.abort();
}

async function followUntilEnd(
  path: string,
  handlers: StreamHandlers,
  from: string,
  ended: AbortController,
): Promise<void> {
  let lastId = from;
  let delayMs = RETRY_DELAY_MIN_MS;
  let delayMaxMs = RETRY_DELAY_MAX_MS;
  while (!ended.signal.aborted) {
    const parser = new Parser(lastId);
    try {
      const hasEnded = await readConnection(
        path,
        parser,
        handlers,
        ended.signal,
        () => (delayMs = RETRY_DELAY_MIN_MS),
      );
      if (hasEnded || ended.signal.aborted) return;
      delayMaxMs = RETRY_DELAY_MAX_MS;
      handlers.onLost?.(new ApiError("stream_ended", 0, "the server ended the stream"));
    } catch (error) {
      if (ended.signal.aborted) return;
      const apiError = ApiError.from(error);
      if (isFinal(apiError)) return handlers.onRefused?.(apiError);
      delayMaxMs = isTakeover(apiError) ? TAKEOVER_RETRY_DELAY_MAX_MS : RETRY_DELAY_MAX_MS;
      handlers.onLost?.(apiError);
    }
    lastId = parser.lastId;
    delayMs = Math.min(delayMs, delayMaxMs);
    await pause(delayMs + Math.random() * delayMs * 0.3, ended.signal);
    delayMs *= 1.8;
  }
}

/** Whether the same request would be refused again. */
export function isFinal({ status }: ApiError): boolean {
  return status >= 400 && status < 500 && status !== 429;
}

async function readConnection(
  path: string,
  parser: Parser,
  handlers: StreamHandlers,
  ended: AbortSignal,
  onAlive: () => void,
): Promise<boolean> {
  const silence = new AbortController();
  const signal = AbortSignal.any([ended, silence.signal]);
  let silenceTimer = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
  let openTimer: ReturnType<typeof setTimeout> | undefined;
  let isOpen = false;
  let since = Date.now();
  const resumes = parser.lastId !== "";
  const markOpen = () => {
    clearTimeout(openTimer);
    if (isOpen || signal.aborted) return;
    isOpen = true;
    onAlive();
    handlers.onOpen?.(resumes, since);
  };
  try {
    const headers: Record<string, string> = { ...CSRF_HEADERS, accept: "text/event-stream" };
    if (resumes) headers["last-event-id"] = parser.lastId;
    const response = await fetch(path, { headers, signal, cache: "no-store" });
    if (!response.ok) throw await ApiError.ofResponse(response);
    since = Date.now();
    openTimer = setTimeout(markOpen, OPEN_AFTER_MS);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const part = await reader?.read();
      if (!part || part.done) {
        if (isOpen) return false;
        throw new ApiError("loading", 503, "the server ended the stream at once");
      }
      clearTimeout(silenceTimer);
      silenceTimer = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
      const events = parser.push(part.value);
      if (events.length === 0) continue;
      markOpen();
      if (ended.aborted) return false;
      handlers.onEvents(events);
      if (hasEnd(events)) return true;
    }
  } catch (error) {
    if (silence.signal.aborted) throw new ApiError("silent", 0, "nothing came for too long");
    if (error instanceof DOMException) throw new ApiError("unreachable", 0, error.message);
    throw error;
  } finally {
    clearTimeout(silenceTimer);
    clearTimeout(openTimer);
    silence.abort();
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
