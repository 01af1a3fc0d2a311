import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test } from "vitest";

import type { Job, JobEvent, Origin, RunHistoryEntry, RunStep, StepCause, StepWhy } from "../api/schema";
import english from "../i18n/en.json";
import {
  adviceFor,
  adviceForStep,
  failedFirst,
  jobFailureOf,
  runFailureOf,
  stepCauseOf,
  stepInFocus,
} from "./failureCauses";

const AT = "2026-11-21T08:00:00Z";
const cancelled = (detail: string): JobEvent[] => [
  { at: AT, to: "cancelled", cause: "cancel_requested", message: "cancelled", detail },
];
const step = (name: string, status: RunStep["status"]) => ({ name, status }) as RunStep;
const run = (
  status: "failed" | "cancelled" | "running",
  cause: RunHistoryEntry["cause"],
  detail?: string,
) => ({
  status,
  history: [{ at: AT, to: status, cause, detail }],
});

test("the advice follows from the error code of the result", () => {
  const failed = (error: string) => jobFailureOf({ status: "failed", result: { error } }, [])?.advice;
  expect(failed("out_of_memory")).toBe("memory");
  expect(failed("timeout")).toBe("timeout");
  expect(failed("worker_lost")).toBe("lost");
  expect(failed("a_code_of_a_newer_server")).toBe("timeline");
  // Every known code has advice of its own choice.
  const codes = Object.keys(english.result).filter((code) => code !== "stopped");
  expect(codes.filter((code) => adviceFor(code) === "timeline")).toEqual([]);
});

test("every error code of the runtimes has a text", () => {
  const folder = join(import.meta.dirname, "../../../crates/runtimes/src");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) =>
    path.endsWith(".rs"),
  );
  const source = files.map((path) => readFileSync(join(folder, path), "utf8")).join("\n");
  const ofCalls = [...source.matchAll(/End::(?:start_)?failed\(\s*"(\w+)"/g)];
  // Errors of requests have their codes in a table.
  const ofTable = [...source.matchAll(/^ *Self::.* => "([a-z]+_[a-z_]+)",$/gm)];
  expect(ofCalls.length, "correct the pattern").toBeGreaterThan(10);
  expect(ofTable.length, "correct the pattern").toBeGreaterThan(5);
  const codes = [...ofCalls, ...ofTable].map(([, code = ""]) => code);
  expect(codes.filter((code) => !(code in english.result))).toEqual([]);
});

test("the advice about a container, request or sandbox says what to check", () => {
  expect(adviceFor("image_not_found")).toBe("image");
  expect(adviceFor("engine_unavailable")).toBe("engine");
  expect(adviceFor("unexpected_status")).toBe("httpResponse");
  expect(adviceFor("connect_failed")).toBe("httpConnection");
  expect(adviceFor("sandbox_unavailable")).toBe("sandbox");
  expect(adviceFor("sandbox_conflict")).toBe("sandboxConflict");
  expect(adviceFor("request_timeout"), "other than a timeout of the job").toBe("httpTimeout");
});

test("an end by the completion deadline is explained, as a failure or as a cancellation", () => {
  const byDeadline = { advice: "finishDeadline", endCause: "finish_deadline_passed", stoppedBy: null };
  const result = { error: "finish_deadline_passed" };
  expect(jobFailureOf({ status: "failed", result }, [])).toEqual(byDeadline);
  const end: JobEvent[] = [{ ...cancelled("")[0]!, cause: "finish_deadline_passed" }];
  const stopped = { status: "cancelled", result: { error: "stopped" } } as const;
  expect(jobFailureOf(stopped, end)).toEqual(byDeadline);
  // Without its events, the job itself tells.
  const spec = { finish_by: { after: "1h", action: "cancel" } } as Job["spec"];
  const overdue = { ...stopped, overdue: true, spec };
  expect(jobFailureOf(overdue, [])).toEqual(byDeadline);
  expect(jobFailureOf({ ...overdue, cancel_requested_at: AT }, [])).toBeNull();
  expect(jobFailureOf(overdue, cancelled("ann"))).toBeNull();
  // An overdue job can fail for another reason.
  expect(jobFailureOf({ ...overdue, status: "failed", result: { error: "exit_code" } }, [])?.advice).toBe(
    "task",
  );
});

test("a job that was lost too often has other advice than one that must not start again", () => {
  const failed = (losses: number) =>
    jobFailureOf({ status: "failed", result: { error: "worker_lost" }, losses }, [])?.advice;
  expect(failed(6)).toBe("lostTooOften");
  expect(failed(0)).toBe("lost");
});

const ofStep = { step: { run: "run_1", workflow: "etl", name: "load", step: 0 } };
const ofElement = { step: { ...ofStep.step, element: { index: 0, total: 2, value: "eu" } } };
const bySchedule = { origin: { name: "nightly" } as Origin };

test("a job that expired, or that the system cancelled, is explained; one that a user cancelled is not", () => {
  const ended = (
    status: "cancelled" | "expired" | "succeeded" | "running",
    events: JobEvent[] = [],
    more: Pick<Job, "step" | "origin"> = {},
  ) => jobFailureOf({ status, result: null, ...more }, events);
  // Also without its events: the card of a run does not read them.
  expect(ended("expired")).toMatchObject({ advice: "deadline", endCause: "deadline_passed" });
  expect(ended("cancelled", cancelled("the run: the step was stopped"), ofElement)).toMatchObject({
    advice: "stepStopped",
    stoppedBy: { by: "run" },
  });
  const replaced = cancelled(`schedule nightly: replaced by the firing for ${AT}`);
  expect(ended("cancelled", replaced, bySchedule)).toMatchObject({
    advice: "replaced",
    stoppedBy: { by: "schedule", name: "nightly", at: AT },
  });
  const whileRunning = cancelled("cancelled by the run: the step was stopped");
  expect(ended("cancelled", whileRunning, ofElement)?.stoppedBy).toEqual({ by: "run" });
  // A user's words: the run and the schedule stop only their own jobs.
  expect(ended("cancelled", whileRunning)).toBeNull();
  expect(ended("cancelled", replaced)).toBeNull();
  expect(ended("cancelled", replaced, { origin: { name: "hourly" } as Origin })).toBeNull();
  const upstream: JobEvent[] = [{ ...whileRunning[0]!, cause: "dependency_never_satisfied" }];
  expect(ended("cancelled", upstream, ofElement)).toBeNull();
  expect(ended("cancelled", cancelled("cancelled by ann"))).toBeNull();
  expect(ended("cancelled", cancelled("ann: the run: is wrong"))).toBeNull();
  expect(ended("cancelled")).toBeNull();
  expect(ended("succeeded")).toBeNull();
  expect(ended("running")).toBeNull();
});

test("the cause of its step tells who cancelled a job, whatever the texts say", () => {
  const ended = (cause: StepCause | undefined, detail: string) =>
    jobFailureOf({ status: "cancelled", result: null, ...ofStep }, cancelled(detail), cause)?.stoppedBy;
  expect(ended("stopped", "words of a newer server")).toEqual({ by: "run" });
  expect(ended("timed_out", "ann")).toEqual({ by: "run" });
  expect(ended("job_cancelled", "the run: the step was stopped")).toBeUndefined();
  // The step has continued with another job.
  expect(ended("job_succeeded", "the run: the step was stopped")).toEqual({ by: "run" });
  expect(ended("job_succeeded", "ann")).toBeUndefined();
  expect(ended(undefined, "the run: the step was stopped")).toEqual({ by: "run" });

  const why: StepWhy = {
    run: "run_1",
    step: "load",
    status: "cancelled",
    reasons: [{ reason: "ended", cause: "stopped" }],
  };
  expect(stepCauseOf(ofStep, why)).toBe("stopped");
  // The cause of a mapped step does not tell who cancelled one of its elements.
  expect(stepCauseOf(ofElement, why)).toBeUndefined();
  expect(stepCauseOf({}, undefined)).toBeUndefined();
});

test("a failed run is explained by the steps that failed themselves", () => {
  const steps = [step("a", "succeeded"), step("c", "upstream_failed"), step("b", "failed")];
  expect(runFailureOf(run("failed", "step_failed"), steps)?.failed.map(({ name }) => name)).toEqual(["b"]);
  expect(stepInFocus({ status: "failed" }, steps)).toBe("b");
  expect(stepInFocus({ status: "running" }, steps)).toBeUndefined();
});

test("a failed step without a job has advice of its own", () => {
  expect(adviceForStep({ cause: "rejected" })).toBe("rejected");
  expect(adviceForStep({ cause: "bad_reference" })).toBe("definition");
  expect(adviceForStep({ cause: null })).toBe("timeline");
});

test("a run without a failed step is explained by its own cause", () => {
  expect(runFailureOf(run("failed", "timed_out"), [])?.advice).toBe("runTimeout");
  expect(runFailureOf(run("cancelled", "parent_stopped"), [])?.stoppedBy).toEqual({ by: "run" });
  expect(runFailureOf(run("cancelled", "cancel_requested", "ann: too late"), [])).toBeNull();
  const replaced = `schedule etl: replaced by the firing for ${AT}`;
  const scheduled = { ...run("cancelled", "cancel_requested", replaced), origin: { name: "etl" } as Origin };
  expect(runFailureOf(scheduled, [])?.advice).toBe("replaced");
  expect(runFailureOf(run("cancelled", "cancel_requested", replaced), [])).toBeNull();
  expect(
    runFailureOf({ ...scheduled, ...run("cancelled", "timed_out", replaced) }, [])?.stoppedBy,
  ).toBeNull();
  expect(runFailureOf(run("running", "started"), [])).toBeNull();
});

test("failed steps come first, and the others keep their order", () => {
  const steps = [step("a", "succeeded"), step("b", "running"), step("c", "failed"), step("d", "pending")];
  expect(failedFirst(steps).map(({ name }) => name)).toEqual(["c", "a", "b", "d"]);
});
