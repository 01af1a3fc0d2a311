import { expect, test } from "vitest";

import type { JobSpec } from "../api/schema";
import { toResubmitCommand } from "./submitCommands";

test("a resubmit command omits the idempotency key, the run time and the upstream jobs", () => {
  const spec = {
    name: "load",
    run: { process: { command: ["./load", "--all"] } },
    idempotency_key: "load-1",
    run_at: "2026-11-21T08:00:00Z",
    after: [{ job: "job_01k9zq3m6c0000000000000000" }],
  } as JobSpec;
  const command = toResubmitCommand(spec);
  expect(command).toMatch(/^belfry submit -f - <<'BELFRY_JOB'\n/);
  expect(command).toContain("name: load");
  expect(command).not.toMatch(/idempotency_key|run_at|after/);
});
