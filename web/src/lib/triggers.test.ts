import { expect, test } from "vitest";

import type { Ended, TriggerStatus, WorkflowSpec } from "../api/schema";
import { kindOfEnd, missingSources, sourcesOf, waitsForJobs } from "./triggers";

const AT = "2026-11-21T08:00:00Z";
const job = (name: string, status: Ended["status"] = "succeeded"): Ended => ({
  job_id: `job_${name}`,
  name,
  status,
  at: AT,
});
const run = (name: string, status: Ended["status"] = "succeeded"): Ended => ({
  run_id: `run_${name}`,
  name,
  status,
  at: AT,
});
const waiting = (...waiting_events: Ended[]): TriggerStatus => ({ runs: 0, refused: 0, waiting_events });

test("a trigger has one source, with the defaults of the server", () => {
  expect(sourcesOf({ workflow: "extract" }, undefined)).toEqual([
    { kind: "workflow", name: "extract", on: "success", labels: {}, within: null, ended: null },
  ]);
  expect(sourcesOf({ job: "rates", on: "any", within: "1h", labels: { region: "eu" } }, waiting())).toEqual([
    { kind: "job", name: "rates", on: "any", labels: { region: "eu" }, within: "1h", ended: null },
  ]);
});

test("an end waits at its source: same kind, same name, and a result that the source accepts", () => {
  const all = [{ job: "rates" }, { workflow: "rates" }, { job: "rates", on: "failure" as const }];
  const found = (...ends: Ended[]) => sourcesOf({ all }, waiting(...ends)).map(({ ended }) => ended?.status);
  expect(found(run("rates"))).toEqual([undefined, "succeeded", undefined]);
  expect(found(job("rates", "expired"))).toEqual([undefined, undefined, "expired"]);
  expect(found(job("rates"), job("rates", "failed"))).toEqual(["succeeded", undefined, "failed"]);
  expect(found(job("rates", "cancelled"), job("other"))).toEqual([undefined, undefined, undefined]);
});

test("two sources of one name have an end each, in the order of the sources", () => {
  const all = [
    { job: "rates", labels: { region: "eu" } },
    { job: "rates", labels: { region: "us" } },
    { workflow: "ledger" },
  ];
  const sources = sourcesOf({ all }, waiting(job("rates"), { ...job("rates"), job_id: "job_2" }));
  expect(sources.map(({ ended }) => ended?.job_id)).toEqual(["job_rates", "job_2", undefined]);
  expect(missingSources(sources)).toBe(1);
});

test("a trigger waits for the other sources once one has ended", () => {
  const all = [{ job: "rates" }, { workflow: "ledger" }];
  expect(missingSources(sourcesOf({ all }, waiting()))).toBe(0);
  expect(missingSources(sourcesOf({ all }, waiting(run("ledger"))))).toBe(1);
  expect(missingSources(sourcesOf({ job: "rates" }, waiting()))).toBe(0);
});

test("an end is that of a job or of a run", () => {
  expect(kindOfEnd(job("rates"))).toBe("job");
  expect(kindOfEnd(run("ledger"))).toBe("workflow");
});

test("ends of jobs matter to a workflow whose trigger keeps them", () => {
  const spec = (triggers: WorkflowSpec["triggers"]): WorkflowSpec => ({
    name: "report",
    steps: [],
    triggers,
  });
  expect(waitsForJobs(spec([{ all: [{ workflow: "a" }, { job: "b" }] }]))).toBe(true);
  // The run that such an end starts is an event of its own.
  expect(waitsForJobs(spec([{ job: "b" }]))).toBe(false);
  expect(waitsForJobs(spec([{ all: [{ workflow: "a" }, { workflow: "b" }] }]))).toBe(false);
  expect(waitsForJobs(spec(undefined))).toBe(false);
  expect(waitsForJobs(null)).toBe(false);
});
