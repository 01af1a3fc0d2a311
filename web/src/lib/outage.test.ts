/** D6, H1. What the banner says when nothing comes from the server. */

import { expect, test } from "vitest";

import type { FeedStatus } from "../api/feed";
import { ApiError } from "../api/errors";
import { outage, visibleOutage } from "./outage";

const LOST_AT = 1_000_000;

function lost(code: string, status: number): FeedStatus {
  return { state: "lost", lostAt: LOST_AT, error: new ApiError(code, status, "why") };
}

test("a feed that is there, or was not there yet, is no outage", () => {
  expect(outage({ state: "live", lostAt: null, error: null }, LOST_AT)).toBeNull();
  expect(outage({ state: "connecting", lostAt: null, error: null }, LOST_AT)).toBeNull();
});

test("a server that waits for the next leader is told at once, and becomes a matter for somebody", () => {
  for (const code of ["loading", "outcome_unknown", "stopping"]) {
    expect(visibleOutage(lost(code, 503), LOST_AT)).toBe("takeOver");
    expect(visibleOutage(lost(code, 503), LOST_AT + 14_999)).toBe("takeOver");
    expect(visibleOutage(lost(code, 503), LOST_AT + 15_000)).toBe("leaderless");
  }
});

test("silence is told after a moment, whatever its cause", () => {
  for (const silent of [lost("unreachable", 0), lost("stream_ended", 0), lost("unexpected", 502)]) {
    expect(visibleOutage(silent, LOST_AT + 1_499)).toBeNull();
    expect(outage(silent, LOST_AT + 1_499)).toBe("unreachable");
    expect(visibleOutage(silent, LOST_AT + 1_500)).toBe("unreachable");
  }
});

test("a store that does not answer is not taken for a missing leader", () => {
  expect(visibleOutage(lost("store_unavailable", 503), LOST_AT + 60_000)).toBe("store");
});
