/**
 * The one live feed of everything that happens, shared by all views.
 *
 * Events are handed on in batches, a few a second, however many come: what a person looks at need
 * not change faster than it can be read, and 5,000 changes a second cost a handful of renders.
 */

import { FEED } from "./hub";
import type { ApiError } from "./errors";
import type { FeedEvent } from "./schema";
import type { ServerEvent } from "./sse";
import { follow } from "./streams";

export type FeedState = "connecting" | "live" | "lost";

export interface FeedStatus {
  state: FeedState;
  /** When the stream was lost; what is shown is as old as that. */
  lostAt: number | null;
  /** Why it is not there, as the last try to have it back was told. */
  error: ApiError | null;
}

const INITIAL: FeedStatus = { state: "connecting", lostAt: null, error: null };

/** What was asked for before `since` must be read again. */
type ResetListener = (since: number) => void;
type BatchListener = (batch: readonly FeedEvent[]) => void;

/** How long changes are gathered before views hear of them. */
const BATCH_MS = 200;
/** The same in a flood, in which nobody can read single changes. */
const BURST_BATCH_MS = 500;
/** A batch of so many is a flood. */
const BURST_EVENTS = 400;
/** How many of the newest events are at hand. */
const RECENT_MAX = 2_000;

class Feed {
  #status = INITIAL;
  #stop: (() => void) | null = null;
  #pending: FeedEvent[] = [];
  #delayMs = BATCH_MS;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #recent: FeedEvent[] = [];
  #onStatus = new Set<() => void>();
  #onBatch = new Set<BatchListener>();
  #onReset = new Set<ResetListener>();

  start(): void {
    this.#stop ??= follow(FEED, {
      onOpen: (resumed, since) => {
        this.#set({ state: "live", lostAt: null, error: null });
        // What was read before may have changed before the stream was there.
        if (!resumed) this.#reset(since);
      },
      onEvents: (events) => this.#receive(events),
      onLost: (error) => this.#lost(error),
      onRefused: (error) => {
        this.#stop = null;
        this.#lost(error);
      },
    });
  }

  stop(): void {
    this.#stop?.();
    this.#stop = null;
    this.#recent = [];
    this.#set(INITIAL);
  }

  get status(): FeedStatus {
    return this.#status;
  }

  /** The newest events, newest first. */
  get recent(): readonly FeedEvent[] {
    return this.#recent;
  }

  onStatus = (listener: () => void): (() => void) => {
    this.#onStatus.add(listener);
    return () => this.#onStatus.delete(listener);
  };

  onBatch = (listener: BatchListener): (() => void) => {
    this.#onBatch.add(listener);
    return () => this.#onBatch.delete(listener);
  };

  /** The stream did not go on without a gap: whatever is shown must be read again. */
  onReset = (listener: ResetListener): (() => void) => {
    this.#onReset.add(listener);
    return () => this.#onReset.delete(listener);
  };

  #lost(error: ApiError): void {
    this.#set({ state: "lost", lostAt: this.#status.lostAt ?? Date.now(), error });
  }

  #set(status: FeedStatus): void {
    this.#status = status;
    for (const listener of this.#onStatus) listener();
  }

  #reset(since: number): void {
    for (const listener of this.#onReset) listener(since);
  }

  #receive(events: ServerEvent[]): void {
    for (const event of events) {
      if (event.name === "reset") this.#reset(Date.now());
      else this.#pending.push(JSON.parse(event.data) as FeedEvent);
    }
    this.#timer ??= setTimeout(() => this.#flush(), this.#delayMs);
  }

  #flush(): void {
    this.#timer = null;
    const batch = this.#pending;
    this.#pending = [];
    this.#delayMs = batch.length < BURST_EVENTS ? BATCH_MS : BURST_BATCH_MS;
    if (batch.length === 0) return;
    this.#recent = [...batch.slice(-RECENT_MAX).reverse(), ...this.#recent].slice(0, RECENT_MAX);
    for (const listener of this.#onBatch) listener(batch);
  }
}

export const feed = new Feed();
