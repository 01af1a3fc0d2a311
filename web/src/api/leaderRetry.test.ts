/** D6, A10, H1. For users of the dashboard a leader change is only a delay, and no request takes effect twice. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { withLeaderRetry } from "./leaderRetry";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const JOBS = "http://belfry.test/api/v1/jobs";

function refused(code: string): Response {
  const problem = { type: "/x", title: "T", status: 503, detail: "not now", code, hint: "later" };
  return Response.json(problem, { status: 503 });
}

/** Sends a request to servers that return these responses; the last one is repeated. */
async function sent(request: Request, answers: Array<() => Response>) {
  const bodies: string[] = [];
  const sending = withLeaderRetry(async (each) => {
    bodies.push(await each.text());
    const answer = answers[Math.min(bodies.length, answers.length) - 1];
    return answer ? answer() : new Response();
  })(request);
  await vi.advanceTimersByTimeAsync(60_000);
  const response = await sending;
  return { status: response.status, bodies };
}

const loading = () => refused("loading");
const outcomeUnknown = () => refused("outcome_unknown");
const succeeded = () => Response.json({});

test("a request without a leader is retried unchanged until there is a leader", async () => {
  const request = new Request(JOBS, { method: "POST", body: "a job" });
  expect(await sent(request, [loading, loading, succeeded])).toEqual({
    status: 200,
    bodies: ["a job", "a job", "a job"],
  });
});

test("a request with an unknown outcome is retried only if it is idempotent", async () => {
  const change = () => new Request(JOBS, { method: "POST", body: "a job" });
  expect(await sent(change(), [outcomeUnknown, succeeded])).toMatchObject({ status: 503, bodies: ["a job"] });
  const keyed = change();
  keyed.headers.set("idempotency-key", "k");
  expect(await sent(keyed, [outcomeUnknown, succeeded])).toMatchObject({ status: 200 });
  expect(await sent(new Request(JOBS), [outcomeUnknown, succeeded])).toMatchObject({ status: 200 });
});

test("retries stop at the deadline, and other errors are returned at once", async () => {
  const rejected = await sent(new Request(JOBS), [loading]);
  expect(rejected.status).toBe(503);
  expect(rejected.bodies).toHaveLength(26);
  expect((await sent(new Request(JOBS), [() => refused("stopping"), succeeded])).bodies).toHaveLength(1);
  expect(
    (await sent(new Request(JOBS), [() => new Response("<html>", { status: 503 }), succeeded])).status,
  ).toBe(503);
});

test("a readiness response is returned without retries", async () => {
  expect(await sent(new Request("http://belfry.test/readyz"), [loading, succeeded])).toMatchObject({
    status: 503,
  });
});

test("an aborted request is not retried", async () => {
  const ended = new AbortController();
  let attempts = 0;
  const send = withLeaderRetry(() => {
    attempts += 1;
    ended.abort();
    return Promise.resolve(loading());
  });
  await expect(send(new Request(JOBS, { signal: ended.signal }))).rejects.toThrow();
  expect(attempts).toBe(1);
});
