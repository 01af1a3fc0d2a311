import { expect, it } from "vitest";

import { auditQueryOf } from "./audit";

const NOW = new Date("2026-11-28T08:00:00Z");

it("converts a search to the parameters of the API", () => {
  const search = { actor: "ann", object: "nightly", resource: "schedules", outcome: "denied", days: "7" };
  expect(auditQueryOf(search, NOW)).toEqual({
    actor: "ann",
    object: "nightly",
    resource: "schedules",
    outcome: "denied",
    since: "2026-11-21T08:00:00.000Z",
  });
});

it("ignores unknown words of an address", () => {
  const query = auditQueryOf({ resource: "cows", outcome: "ok", days: "8" }, NOW);
  expect(Object.values(query).every((value) => value === undefined)).toBe(true);
});
