/** G2. Failure groups are filtered as the address says, and a job finds the group that counts it. */

import { expect, test } from "vitest";

import type { FailureGroup, Job } from "../api/schema";
import { groupOfJob, hoursUntil, orderOf, statesOf, toFailuresQuery, withState } from "./failures";

const NOW = Date.parse("2026-11-21T12:34:56Z");

test("a list shows open and known groups by default, the newest failure first", () => {
  expect(toFailuresQuery({}, NOW)).toEqual({ state: "open,known", order: "last_seen" });
});

test("the filters of the address become those of the API", () => {
  const search = { state: "all", name: "a", text: "b", namespace: "c", since: "24h", order: "count" };
  const since = "2026-11-20T12:34:56.000Z";
  expect(toFailuresQuery(search, NOW)).toEqual({
    name: "a",
    text: "b",
    namespace: "c",
    since,
    order: "count",
  });
});

test("an unknown order, state or span of an address is ignored", () => {
  expect(orderOf({ order: "x" })).toBe("last_seen");
  expect(statesOf({ state: "x" })).toEqual(["open", "known", "muted", "resolved"]);
  expect(statesOf({ state: "x,muted" })).toEqual(["muted"]);
  expect(toFailuresQuery({ since: "x" }, NOW).since).toBeUndefined();
});

test("a state is shown or hidden; the default states are not in the address", () => {
  const toggled = (state: string | undefined, other: "open" | "known" | "muted" | "resolved") =>
    withState({ state, name: "a" }, other);
  expect(toggled(undefined, "known")).toEqual({ name: "a", state: "open" });
  expect(toggled("open", "known")).toEqual({ name: "a", state: undefined });
  expect(toggled(undefined, "resolved").state).toBe("open,known,resolved");
  expect(toggled("open,known,resolved", "muted").state).toBe("all");
  expect(toggled("all", "muted").state).toBe("open,known,resolved");
  expect(toggled("open", "open").state).toBe("all");
});

test("hours without failures are filled in, and older hours are left out", () => {
  const hours = [
    { at: "2026-11-21T08:00:00Z", count: 9 },
    { at: "2026-11-21T10:00:00Z", count: 2 },
    { at: "2026-11-21T12:00:00Z", count: 5 },
  ];
  const found = hoursUntil(hours, NOW, 3);
  expect(found.map(({ failed }) => failed)).toEqual([2, 0, 5]);
  expect(found[2]).toEqual({
    from: Date.parse("2026-11-21T12:00:00Z"),
    to: Date.parse("2026-11-21T13:00:00Z"),
    failed: 5,
  });
});

const group = (id: string, over: Partial<FailureGroup>) =>
  ({ id, error: "exit_code", exit_code: 1, message: "boom", jobs: [], ...over }) as unknown as FailureGroup;
const job = (id: string, message = "boom", over: Partial<Job> = {}) =>
  ({ id, status: "failed", result: { error: "exit_code", exit_code: 1, message }, ...over }) as Job;

test("a job finds the group that lists it, else the group of an equal result", () => {
  const groups = [
    group("a", { exit_code: 2 }),
    group("b", {}),
    group("c", { message: "row 7", jobs: ["j7"] }),
    group("d", { error: "timeout", exit_code: null }),
  ];
  const found = (of: Job) => groupOfJob(groups, of)?.id ?? null;
  expect(found(job("j7", "row 8"))).toBe("c");
  expect(found(job("j1"))).toBe("b");
  expect(found(job("j2", "row 9"))).toBe("c");
  expect(found(job("j2", "row x"))).toBe(null);
  expect(found(job("j3", "boom", { result: { error: "timeout", message: "boom" } }))).toBe("d");
});

test("a job that has expired or was cancelled has no group by its last result", () => {
  expect(groupOfJob([group("b", {})], job("j", "boom", { status: "cancelled" }))).toBe(null);
  expect(
    groupOfJob([group("b", { jobs: ["j"] })], job("j", "", { status: "expired", result: null }))?.id,
  ).toBe("b");
});
