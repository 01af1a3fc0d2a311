/** G2. Events are reflected in the views, also while data is being read. */

import { QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { FeedEvent } from "./schema";

const listeners: Array<(batch: readonly FeedEvent[]) => void> = [];
vi.mock("./feed", () => ({
  feed: {
    status: { state: "live" },
    onBatch: (listener: (batch: readonly FeedEvent[]) => void) => {
      listeners.push(listener);
      return () => {};
    },
    onReset: () => () => {},
    onStatus: () => () => {},
  },
}));
vi.mock("./client", () => ({ api: {}, unwrap: () => Promise.reject(new Error("no server")) }));
vi.stubGlobal("document", { hidden: false, addEventListener: () => {}, removeEventListener: () => {} });

const { startRefreshing, queryClient, recentQuery } = await import("./queries");

/** Current state on the server. */
let state = "running";
const READ_MS = 3_000;

/** The server reads the state at once, but its response takes long. */
async function read(): Promise<string> {
  const seen = state;
  await new Promise((resolve) => setTimeout(resolve, READ_MS));
  return seen;
}

function emit(event: Partial<FeedEvent>): void {
  listeners.forEach((listener) => listener([event as FeedEvent]));
}

let stop = () => {};
beforeEach(() => {
  vi.useFakeTimers();
  state = "running";
  stop = startRefreshing();
});
afterEach(() => {
  stop();
  listeners.length = 0;
  queryClient.clear();
  vi.useRealTimers();
});

test.each([
  ["a run", { queryKey: ["run", "r-1"] }, { type: "step.succeeded", run_id: "r-1" }],
  ["a list", recentQuery(["running"], 20), { type: "job.succeeded", job_id: "j-1", from: "running" }],
] as const)("an event that arrives while %s is being read is not missed", async (_, options, event) => {
  const observer = new QueryObserver<string>(queryClient, {
    queryKey: options.queryKey,
    meta: "meta" in options ? options.meta : undefined,
    queryFn: read,
    retry: false,
  });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READ_MS / 2);
  state = "succeeded";
  emit(event);
  await vi.advanceTimersByTimeAsync(READ_MS);
  expect(observer.getCurrentResult().data).toBe("running");
  await vi.advanceTimersByTimeAsync(2 * READ_MS);
  expect(observer.getCurrentResult().data).toBe("succeeded");
  unsubscribe();
});

test("one event causes one more read, not one per second", async () => {
  const reads = vi.fn(read);
  const observer = new QueryObserver<string>(queryClient, { queryKey: ["run", "r-1"], queryFn: reads });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READ_MS / 2);
  emit({ type: "run.succeeded", run_id: "r-1" });
  await vi.advanceTimersByTimeAsync(20 * READ_MS);
  expect(reads).toHaveBeenCalledTimes(2);
  unsubscribe();
});
