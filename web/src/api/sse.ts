/**
 * Server-sent events over `fetch`. `EventSource` cannot choose where to resume, and does not report why it was
 * refused.
 *
 * A {@link follow}ed stream resumes after the last received id, so that no event is lost or received twice when the
 * connection fails. It ends after the server's `end` event, or when the server refuses it permanently.
 *
 * This module runs in pages and in a shared worker, so it uses no globals that only one of them has.
 */

import { createParser } from "eventsource-parser";

import { CSRF_HEADERS } from "./csrf";
import { isTakeover, ApiError } from "./errors";

export interface ServerEvent {
  /** Event name; `message` if the server sent none. */
  name: string;
  data: string;
  id: string;
}

/** Incremental parser of an event stream; accepts chunks split at any position. */
export class Parser {
  #lastId: string;
  #events: ServerEvent[] = [];
  readonly #parser = createParser({
    // Called before `onEvent`, and for heartbeats, which have no data.
    onId: (id) => (this.#lastId = id),
    onEvent: ({ event = "message", data }) => this.#events.push({ name: event, data, id: this.#lastId }),
  });

  constructor(lastId = "") {
    this.#lastId = lastId;
  }

  /** Id of the newest complete event or heartbeat. */
  get lastId(): string {
    return this.#lastId;
  }

  push(text: string): ServerEvent[] {
    this.#events = [];
    this.#parser.feed(text);
    return this.#events;
  }
}

export interface StreamHandlers {
  /** Called with received events in order, at least one. */
  onEvents: (events: ServerEvent[]) => void;
  /**
   * Called when the stream is open; `resumed` if it continues exactly where an earlier one was lost. The stream
   * contains every event after `since`, in ms by this machine's clock.
   */
  onOpen?: (resumed: boolean, since: number) => void;
  /** Called when the stream is lost; it is reopened after a delay. */
  onLost?: (error: ApiError) => void;
  /** Called when the server refuses the stream permanently; it is not retried. */
  onRefused?: (error: ApiError) => void;
}

/** Maximum silence before the connection counts as lost; the server sends at least a heartbeat every 15 s. */
const SILENCE_MAX_MS = 40_000;
/**
 * A server without a leader may open a stream and end it at once. A stream counts as open after this time, or after
 * its first event.
 */
const OPEN_AFTER_MS = 250;
const RETRY_DELAY_MIN_MS = 400;
const RETRY_DELAY_MAX_MS = 8_000;
/** Maximum retry delay while there is no leader; a takeover takes only a few seconds. */
const TAKEOVER_RETRY_DELAY_MAX_MS = 1_000;

/** Returns whether the events contain the server's `end` event. */
export function hasEnd(events: readonly ServerEvent[]): boolean {
  return events.some(({ name }) => name === "end");
}

/**
 * Follows a stream, after `lastId` unless it is empty. Ends with the server's `end` event, or when the returned
 * function is called.
 */
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

/** Returns whether the same request would fail again. */
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
    if (silence.signal.aborted) throw new ApiError("silent", 0, "no data received within 40 s");
    if (error instanceof DOMException) throw new ApiError("unreachable", 0, error.message);
    throw error;
  } finally {
    clearTimeout(silenceTimer);
    clearTimeout(openTimer);
    silence.abort();
  }
}

/** Waits for `ms`, or until the browser is online again or `ended` is aborted. */
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
