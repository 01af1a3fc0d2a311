import { expect, test } from "vitest";

import { awaitsApproval } from "./runs";

const approval = { step: "gate", since: "2026-11-21T00:00:00Z" };
const run = { status: "running" as const, steps: { waiting: 1, running: 0 }, approvals: [approval] };

test("a run in which nothing but approvals is under way waits for these", () => {
  expect(awaitsApproval(run)).toBe(true);
  expect(awaitsApproval({ ...run, steps: { waiting: 1, running: 1 } })).toBe(false);
  // The other one waits for an event.
  expect(awaitsApproval({ ...run, steps: { waiting: 2, running: 0 } })).toBe(false);
  expect(awaitsApproval({ ...run, status: "paused" })).toBe(false);
  expect(awaitsApproval({ ...run, approvals: undefined })).toBe(false);
});
