import { expect, test } from "vitest";

import type { FeedEvent } from "../api/schema";
import { endingsIn, type Watched } from "./watches";

const job: Watched = { kind: "jobs", id: "job_1", name: "import" };
const run: Watched = { kind: "runs", id: "run_1", name: "etl #1" };
const watched = new Map([job, run].map((each) => [each.id, each]));
const event = (over: object) => ({ seq: 1, at: "2026-11-21T08:00:00Z", ...over }) as FeedEvent;
const statuses = (...events: object[]) =>
  endingsIn(events.map(event), watched).map(({ watched: { id }, status }) => [id, status]);

test("the end of a watched job or run is found, and other events are not", () => {
  expect(
    statuses(
      { type: "job.running", job_id: "job_1", to: "running" },
      { type: "job.failed", job_id: "job_1", to: "failed" },
      { type: "job.succeeded", job_id: "job_2", to: "succeeded" },
      { type: "run.succeeded", run_id: "run_1" },
    ),
  ).toEqual([
    ["job_1", "failed"],
    ["run_1", "succeeded"],
  ]);
});

test("a retry is no end, and neither is the end of a job or step of the run", () => {
  expect(
    statuses(
      { type: "job.retrying", job_id: "job_1", to: "retrying" },
      { type: "run.retrying", run_id: "run_1" },
      { type: "job.failed", job_id: "job_3", run_id: "run_1", to: "failed" },
      { type: "step.failed", run_id: "run_1", step: "load" },
    ),
  ).toEqual([]);
});
