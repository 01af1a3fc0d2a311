/** Comparisons show what differs, and nothing else. */

import { expect, test } from "vitest";

import type { JobSpec, RunStep } from "../api/schema";
import { comparedSpec, differences, differingStep, pairSteps, stepDuration } from "./compare";

test("fields with different values are listed by path, equal ones are not", () => {
  const a = {
    name: "x",
    run: { process: { command: ["ls", "-l"], env: { MODE: "fast", HOME: "/" } } },
    priority: 50,
  };
  const b = {
    name: "x",
    run: { process: { command: ["ls"], env: { HOME: "/", DEBUG: "1" } } },
    priority: 50,
  };
  expect(differences(a, b)).toEqual([
    { path: "run.process.command", a: '["ls","-l"]', b: '["ls"]' },
    { path: "run.process.env.MODE", a: "fast", b: null },
    { path: "run.process.env.DEBUG", a: null, b: "1" },
  ]);
  expect(differences(a, structuredClone(a))).toEqual([]);
  expect(differences(null, 7)).toEqual([{ path: "", a: null, b: "7" }]);
});

test("the idempotency keys of two jobs are not compared", () => {
  const spec = (idempotency_key: string) => ({ name: "x", idempotency_key }) as JobSpec;
  expect(differences(comparedSpec(spec("k1")), comparedSpec(spec("k2")))).toEqual([]);
});

const step = (name: string, status: string, more: object = {}) =>
  ({ name, status, job_id: `job_${name}`, ...more }) as unknown as RunStep;

test("steps are paired by name, also after the workflow changed", () => {
  const pairs = pairSteps(
    [step("load", "succeeded"), step("old", "succeeded")],
    [step("new", "failed"), step("load", "failed")],
  );
  expect(pairs.map(({ name, a, b }) => [name, a?.status, b?.status])).toEqual([
    ["load", "succeeded", "failed"],
    ["old", "succeeded", undefined],
    ["new", undefined, "failed"],
  ]);
  expect(differingStep(pairs)).toBe("load");
  expect(differingStep(pairSteps([step("x", "failed")], [step("x", "failed")]))).toBeUndefined();
});

test("a step that was carried over has no duration of its own", () => {
  const times = { started_at: "2026-11-21T12:00:00Z", finished_at: "2026-11-21T12:00:03Z" };
  expect(stepDuration(step("x", "succeeded", times))).toBe(3_000);
  expect(stepDuration(step("x", "succeeded", { ...times, cause: "carried_over" }))).toBeNull();
  expect(stepDuration(step("x", "running", { started_at: times.started_at }))).toBeNull();
  expect(stepDuration(null)).toBeNull();
});
