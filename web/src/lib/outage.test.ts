/** D6, H1. Texts of the banner while the feed is lost. */

import { expect, test } from "vitest";

import type { FeedStatus } from "../api/feed";
import { ApiError } from "../api/errors";
import { outage, visibleOutage } from "./outage";

const LOST_AT = 1_000_000;

function lost(code: string, status: number): FeedStatus {
  return { state: "lost", lostAt: LOST_AT, error: new ApiError(code, status, "why") };
}

test("a live or a connecting feed is no outage", () => {
  expect(outage({ state: "live", lostAt: null, error: null }, LOST_AT)).toBeNull();
  expect(outage({ state: "connecting", lostAt: null, error: null }, LOST_AT)).toBeNull();
});

test("a takeover is reported at once, and becomes `leaderless` after 15 s", () => {
  for (const code of ["loading", "outcome_unknown", "stopping"]) {
    expect(visibleOutage(lost(code, 503), LOST_AT)).toBe("takeOver");
    expect(visibleOutage(lost(code, 503), LOST_AT + 14_999)).toBe("takeOver");
    expect(visibleOutage(lost(code, 503), LOST_AT + 15_000)).toBe("leaderless");
  }
});

test("an unreachable server is reported after a grace period, for any cause", () => {
  for (const silent of [lost("unreachable", 0), lost("stream_ended", 0), lost("unexpected", 502)]) {
    expect(visibleOutage(silent, LOST_AT + 1_499)).toBeNull();
    expect(outage(silent, LOST_AT + 1_499)).toBe("unreachable");
    expect(visibleOutage(silent, LOST_AT + 1_500)).toBe("unreachable");
  }
});

test("an unavailable store is distinguished from a missing leader", () => {
  expect(visibleOutage(lost("store_unavailable", 503), LOST_AT + 60_000)).toBe("store");
});
