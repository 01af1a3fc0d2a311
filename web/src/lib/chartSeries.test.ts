import { expect, test } from "vitest";

import type { FeedEvent, Job } from "../api/schema";
import { applyJobEvents, CHART_JOBS_MAX, niceCeiling, quantile, minuteBuckets } from "./chartSeries";

const NOW = Date.parse("2026-11-21T12:00:30Z");
const job = (over: Partial<Job>) => ({ status: "succeeded", ...over }) as Job;

test("jobs are counted in the minute of their end, older ones are ignored", () => {
  const buckets = minuteBuckets(
    [
      job({ finished_at: "2026-11-21T12:00:10Z" }),
      job({ finished_at: "2026-11-21T12:00:29Z", status: "failed" }),
      job({ finished_at: "2026-11-21T11:58:00Z", status: "cancelled" }),
      job({ finished_at: "2026-11-21T10:00:00Z" }),
      job({ status: "running" }),
    ],
    NOW,
    3,
  );
  expect(buckets.map(({ succeeded, failed, other }) => [succeeded, failed, other])).toEqual([
    [0, 0, 1],
    [0, 0, 0],
    [1, 1, 0],
  ]);
});

test("a delay counts in the minute of the start", () => {
  const waited = job({ queued_at: "2026-11-21T11:59:50Z", started_at: "2026-11-21T12:00:02Z" });
  expect(minuteBuckets([waited], NOW, 2)[1]?.delays).toEqual([12_000]);
});

test("a quantile is one of the values", () => {
  const values = Array.from({ length: 100 }, (_, i) => 100 - i);
  expect([quantile(values, 0.5), quantile(values, 0.95), quantile([], 0.5)]).toEqual([50, 95, null]);
});

test("the top of an axis is a round number", () => {
  expect([0, 1, 3, 7, 12, 240, 990].map(niceCeiling)).toEqual([1, 1, 5, 10, 20, 250, 1_000]);
});

test("events update the jobs of the charts and add unknown ones", () => {
  const event = (job_id: string, to: string, at: string) =>
    ({ type: `job.${to}`, job_id, to, at: `2026-11-21T${at}Z` }) as FeedEvent;
  const before = new Map([["a", { id: "a", status: "running" as const }]]);
  const after = applyJobEvents(before, [
    event("a", "failed", "11:59:50"),
    event("b", "waiting", "11:59:50"),
    event("b", "running", "12:00:05"),
    event("b", "succeeded", "12:00:10"),
  ]);
  const buckets = minuteBuckets(after.values(), NOW, 2);
  expect(buckets.map(({ succeeded, failed, delays }) => [succeeded, failed, delays])).toEqual([
    [0, 1, []],
    [1, 0, [15_000]],
  ]);
  expect(before.get("a")?.status).toBe("running");
});

test("the charts drop the oldest jobs", () => {
  const batch = Array.from(
    { length: CHART_JOBS_MAX + 1 },
    (_, i) => ({ type: "job.waiting", job_id: String(i), to: "waiting", at: "" }) as FeedEvent,
  );
  const jobs = applyJobEvents(new Map(), batch);
  expect([jobs.size, jobs.has("0"), jobs.has("1")]).toEqual([CHART_JOBS_MAX, false, true]);
});
