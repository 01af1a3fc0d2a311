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

const { FAILURES, queryClient, recentQuery, SERIES, startRefreshing } = await import("./queries");

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

test("a series is refetched soon after changes, and at most every 5 s", async () => {
  const reads = vi.fn(() => Promise.resolve("series"));
  const observer = new QueryObserver<string>(queryClient, { queryKey: [SERIES, "1h", {}], queryFn: reads });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READ_MS);
  emit({ type: "worker.registered" });
  await vi.advanceTimersByTimeAsync(READ_MS);
  expect(reads).toHaveBeenCalledTimes(1);
  emit({ type: "job.succeeded", job_id: "j-1", from: "running", to: "succeeded" });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(reads).toHaveBeenCalledTimes(2);
  for (let i = 0; i < 200; i += 1) {
    emit({ type: "job.failed", job_id: "j-1", from: "running", to: "failed" });
    await vi.advanceTimersByTimeAsync(100);
  }
  // 20 s of changes.
  expect(reads.mock.calls.length).toBeLessThanOrEqual(6);
  expect(reads.mock.calls.length).toBeGreaterThanOrEqual(5);
  unsubscribe();
});

test("failure groups are refetched after a failure, at most every 10 s, and not after successes", async () => {
  const reads = vi.fn(() => Promise.resolve("failures"));
  const queryKey = [FAILURES, "list", {}, 50];
  const observer = new QueryObserver<string>(queryClient, { queryKey, queryFn: reads });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READ_MS);
  for (let i = 0; i < 300; i += 1) {
    emit({ type: "job.succeeded", job_id: "j-2", from: "running", to: "succeeded" });
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(reads).toHaveBeenCalledTimes(1);
  emit({ type: "job.failed", job_id: "j-1", from: "running", to: "failed" });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(reads).toHaveBeenCalledTimes(2);
  for (let i = 0; i < 300; i += 1) {
    emit({ type: "job.failed", job_id: "j-1", from: "running", to: "failed" });
    await vi.advanceTimersByTimeAsync(100);
  }
  // 30 s of failures.
  expect(reads.mock.calls.length).toBeGreaterThanOrEqual(4);
  expect(reads.mock.calls.length).toBeLessThanOrEqual(6);
  unsubscribe();
});
