import { expect, test } from "vitest";

import type { WorkflowSpec } from "../api/schema";
import { awaitsApproval, approvalMessage } from "./runs";

const run = { status: "running" as const, steps: { waiting: 1, running: 0 } };

test("a run waits for approval if no other step is active", () => {
  expect(awaitsApproval(run, 1)).toBe(true);
  expect(awaitsApproval({ ...run, steps: { waiting: 1, running: 1 } }, 1)).toBe(false);
  // The other step waits for an event.
  expect(awaitsApproval({ ...run, steps: { waiting: 2, running: 0 } }, 1)).toBe(false);
  expect(awaitsApproval({ ...run, status: "paused" }, 1)).toBe(false);
  expect(awaitsApproval(run, 0)).toBe(false);
});

test("the message of an approval is shown with its references replaced, or not at all", () => {
  const asks = (message: string) => ({
    spec: { steps: [{ name: "gate", approval: { message } }] } as unknown as WorkflowSpec,
  });
  const version = "ship ${{ parameters.version }}?";
  expect(approvalMessage(asks(version), { name: "gate", approval: { message: "ship 1.4?" } })).toBe(
    "ship 1.4?",
  );
  expect(approvalMessage(asks(version), { name: "gate" })).toBeNull();
  expect(approvalMessage(asks("ship it?"), { name: "gate", approval: null })).toBe("ship it?");
  expect(approvalMessage(asks("ship it?"), { name: "other" })).toBeNull();
});
