import { expect, test } from "vitest";

import {
  isSameSearch,
  parseToken,
  toJobsQuery,
  sinceTime,
  tokensOf,
  withoutToken,
  withToken,
} from "./filters";
import { parseSearch, stringifySearch } from "./search";

test("a typed filter is parsed as a key and value, a label, an id or a part of the name", () => {
  expect(parseToken("status:failed")).toEqual({ key: "status", value: "failed" });
  expect(parseToken("team=pay")).toEqual({ key: "label", value: "team=pay" });
  expect(parseToken("wkr_01")).toEqual({ key: "worker", value: "wkr_01" });
  expect(parseToken("sch_01")).toEqual({ key: "schedule", value: "sch_01" });
  expect(parseToken("svc_01")).toEqual({ key: "service", value: "svc_01" });
  expect(parseToken("nightly-backup")).toEqual({ key: "text", value: "nightly-backup" });
  expect(parseToken("status:")).toBeNull();
  expect(parseToken("unknown:x")).toEqual({ key: "text", value: "unknown:x" });
});

test("statuses and labels accumulate; other keys have one value", () => {
  let search = {};
  for (const text of ["status:failed", "status:expired", "a=1", "b=2", "queue:x", "queue:y"]) {
    const token = parseToken(text);
    if (token) search = withToken(search, token);
  }
  expect(search).toEqual({ status: "failed,expired", label: ["a=1", "b=2"], queue: "y" });
  expect(withoutToken(search, { key: "label", value: "a=1" })).toMatchObject({ label: ["b=2"] });
  expect(tokensOf(withoutToken(search, { key: "status", value: "failed,expired" }))).toHaveLength(3);
});

test("a filter survives a round trip through the URL", () => {
  const search = { status: "failed,expired", label: ["a=1", "b=x y"], since: "24h" };
  const address = stringifySearch(search);
  expect(address).toBe("?status=failed,expired&label=a%3D1&label=b%3Dx+y&since=24h");
  expect(isSameSearch(parseSearch(address), search)).toBe(true);
});

test("a span is relative to the current time", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  expect(sinceTime("24h", now)).toBe("2026-11-20T12:00:00.000Z");
  expect(sinceTime("yesterday", now)).toBeUndefined();
  expect(toJobsQuery({ since: "1h" }, now).created_after).toBe("2026-11-21T11:00:00.000Z");
});
