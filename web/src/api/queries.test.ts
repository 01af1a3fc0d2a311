/** G2. What the feed tells is shown, whatever was being read at that moment. */

import { QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { FeedEvent } from "./schema";

const heard: Array<(batch: readonly FeedEvent[]) => void> = [];
vi.mock("./feed", () => ({
  feed: {
    status: { state: "live" },
    onBatch: (listener: (batch: readonly FeedEvent[]) => void) => {
      heard.push(listener);
      return () => {};
    },
    onReset: () => () => {},
    onStatus: () => () => {},
  },
}));
vi.mock("./client", () => ({ api: {}, answer: () => Promise.reject(new Error("no server")) }));
vi.stubGlobal("document", { hidden: false, addEventListener: () => {}, removeEventListener: () => {} });

const { keepFresh, queryClient, recentQuery } = await import("./queries");

/** What the server would answer with now. */
let state = "running";
const READING_MS = 3_000;

/** The server looks at once, and its answer takes long. */
async function read(): Promise<string> {
  const seen = state;
  await new Promise((resolve) => setTimeout(resolve, READING_MS));
  return seen;
}

function tell(event: Partial<FeedEvent>): void {
  heard.forEach((listener) => listener([event as FeedEvent]));
}

let stop = () => {};
beforeEach(() => {
  vi.useFakeTimers();
  state = "running";
  stop = keepFresh();
});
afterEach(() => {
  stop();
  heard.length = 0;
  queryClient.clear();
  vi.useRealTimers();
});

test.each([
  ["a run", { queryKey: ["run", "r-1"] }, { type: "step.succeeded", run_id: "r-1" }],
  ["a list", recentQuery(["running"], 20), { type: "job.succeeded", job_id: "j-1", from: "running" }],
] as const)("an event that comes while %s is being read is not missed", async (_, options, event) => {
  const observer = new QueryObserver<string>(queryClient, {
    queryKey: options.queryKey,
    meta: "meta" in options ? options.meta : undefined,
    queryFn: read,
    retry: false,
  });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READING_MS / 2);
  state = "succeeded";
  tell(event);
  await vi.advanceTimersByTimeAsync(READING_MS);
  expect(observer.getCurrentResult().data).toBe("running");
  await vi.advanceTimersByTimeAsync(2 * READING_MS);
  expect(observer.getCurrentResult().data).toBe("succeeded");
  unsubscribe();
});

test("one event is one more reading, not one a second", async () => {
  const reads = vi.fn(read);
  const observer = new QueryObserver<string>(queryClient, { queryKey: ["run", "r-1"], queryFn: reads });
  const unsubscribe = observer.subscribe(() => {});
  await vi.advanceTimersByTimeAsync(READING_MS / 2);
  tell({ type: "run.succeeded", run_id: "r-1" });
  await vi.advanceTimersByTimeAsync(20 * READING_MS);
  expect(reads).toHaveBeenCalledTimes(2);
  unsubscribe();
});
