/**
 * The live event feed, shared by all views.
 *
 * Events are delivered in batches, a few per second at any event rate. Views need not update faster than a person can
 * read, so 5,000 events a second cost only a handful of renders.
 */

import { FEED } from "./hub";
import type { ApiError } from "./errors";
import type { FeedEvent } from "./schema";
import type { ServerEvent } from "./sse";
import { follow } from "./streams";

export type FeedState = "connecting" | "live" | "lost";

export interface FeedStatus {
  state: FeedState;
  /**
   * When the stream was lost, in ms since the epoch; the displayed data is as old as that. Null while it is
   * connected.
   */
  lostAt: number | null;
  /** Error of the last connection attempt. */
  error: ApiError | null;
}

const INITIAL: FeedStatus = { state: "connecting", lostAt: null, error: null };

/** Called when data requested before `since` (ms since the epoch) must be read again. */
type ResetListener = (since: number) => void;
type BatchListener = (batch: readonly FeedEvent[]) => void;

/** Batch interval at a normal event rate. */
const BATCH_MS = 200;
/** Batch interval at a high event rate, when single events cannot be read anyway. */
const BURST_BATCH_MS = 500;
/** Events in a batch from which the event rate counts as high. */
const BURST_EVENTS = 400;
/** Maximum number of recent events kept in memory. */
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
        // Data read before the stream opened may have changed in between.
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

  /** Recent events, newest first. */
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

  /** Calls the listener when the stream did not resume without a gap: all displayed data must be read again. */
  onReset = (listener: ResetListener): (() => void) => {
    this.#onReset.add(listener);
    return () => this.#onReset.delete(listener);
  };

  /** Lets all displayed data be read again, for example after the rights of the caller have changed. */
  reset(): void {
    this.#reset(Date.now());
  }

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
