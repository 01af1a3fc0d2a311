import { expect, test } from "vitest";

import type { FeedEvent } from "../api/schema";
import { updateCounts, type Counts } from "./statuses";

const counts: Counts = {
  ready: 0,
  waiting: 1,
  running: 2,
  retrying: 0,
  succeeded: 5,
  failed: 0,
  cancelled: 0,
  expired: 0,
};
const event = (over: Partial<FeedEvent>): FeedEvent => ({ seq: 1, at: "", type: "job.running", ...over });

test("counts follow status changes in the feed", () => {
  const next = updateCounts(counts, [
    event({ to: "waiting" }),
    event({ from: "waiting", to: "running" }),
    event({ from: "running", to: "succeeded" }),
    event({ type: "worker.lost" }),
  ]);
  expect(next).toEqual({ ...counts, waiting: 1, running: 2, succeeded: 6 });
});

test("a count never falls below zero", () => {
  expect(updateCounts(counts, [event({ from: "failed", to: "waiting" })]).failed).toBe(0);
});
