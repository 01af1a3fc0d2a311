/** H6. The page of a job name shows what creates its jobs. */

import { expect, test } from "vitest";

import type { Job } from "../api/schema";
import { sourcesOf } from "./sources";

test("each schedule and each step is a source once, with its newest run", () => {
  const step = (workflow: string, name: string, run: string) => ({ step: { workflow, name, run } });
  const jobs = [
    step("etl", "load", "run_3"),
    { origin: { schedule: "sch_b" } },
    step("etl", "load", "run_2"),
    step("etl", "check", "run_2"),
    { origin: { schedule: "sch_a" } },
    { origin: { schedule: "sch_b" } },
    {},
  ] as Job[];
  expect(sourcesOf(jobs)).toEqual({
    schedules: ["sch_b", "sch_a"],
    steps: [
      { workflow: "etl", step: "load", run: "run_3" },
      { workflow: "etl", step: "check", run: "run_2" },
    ],
  });
});
