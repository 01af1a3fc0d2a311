import { expect, test } from "vitest";

import { ApiError } from "../api/errors";
import { BATCH, runBulk, BULK_MAX, findAll, forEachId, groupErrors, RETRIED } from "./bulk";

const ids = (count: number) => Array.from({ length: count }, (_, i) => `i${i}`);

test("the action runs once for each id, and a failure does not stop the others", async () => {
  const acted: string[] = [];
  const act = (id: string) => {
    acted.push(id);
    return id === "i3" ? Promise.reject(new Error("refused")) : Promise.resolve();
  };
  const seen: number[] = [];
  const result = await runBulk(
    ids(20),
    forEachId(act),
    ({ done, failed }) => seen.push(done + failed),
    signal(),
  );
  expect(result).toMatchObject({ done: 19, notAttempted: [] });
  expect([...result.errors.keys()]).toEqual(["i3"]);
  expect(acted.sort()).toEqual(ids(20).sort());
  expect(seen.at(-1)).toBe(20);
});

test("a stopped bulk action sends nothing more and reports what was not attempted", async () => {
  const stop = new AbortController();
  const sizes: number[] = [];
  const act = (batch: readonly string[]) => {
    sizes.push(batch.length);
    if (sizes.length === 2) stop.abort();
    return Promise.resolve(new Map());
  };
  const all = ids(3 * BATCH);
  const { done, notAttempted } = await runBulk(all, act, () => undefined, stop.signal);
  expect(sizes).toEqual([BATCH, BATCH]);
  expect(done).toBe(2 * BATCH);
  expect(notAttempted).toEqual(all.slice(2 * BATCH));
});

test("a failed request counts for all of its ids, and the next one is sent", async () => {
  let requests = 0;
  const act = () => {
    requests += 1;
    return requests === 1
      ? Promise.reject(new ApiError("storage_full", 503, "full"))
      : Promise.resolve(new Map());
  };
  const { done, errors } = await runBulk(ids(BATCH + 1), act, () => undefined, signal());
  expect([done, errors.size]).toEqual([1, BATCH]);
});

test("a batch that a server limit refuses is repeated, until the user stops the action", async () => {
  let requests = 0;
  const limited = new ApiError("client_limit", 429, "limit", { retryAfterMs: 1 });
  const act = () => {
    requests += 1;
    return requests < 4 ? Promise.reject(limited) : Promise.resolve(new Map());
  };
  const result = await runBulk(ids(3), act, () => undefined, signal());
  expect([requests, result.done, result.errors.size]).toEqual([4, 3, 0]);

  const stop = new AbortController();
  const busy = () => {
    stop.abort();
    return Promise.reject(new ApiError("busy", 429, "busy"));
  };
  const { errors } = await runBulk(ids(3), busy, () => undefined, stop.signal);
  expect([...errors.values()].map(({ code }) => code)).toEqual(["busy", "busy", "busy"]);
});

/** An action that allows one id per group at a time; `waitForRetry` ends the running ones. */
function oneAtATime(groupOf: (id: string) => string) {
  const running = new Map<string, string>();
  const started: string[] = [];
  const act = (batch: readonly string[]) => {
    const errors = new Map<string, ApiError>();
    for (const id of batch) {
      const group = groupOf(id);
      if (running.has(group)) errors.set(id, new ApiError("busy", 409, `${group} is busy`));
      else {
        running.set(group, id);
        started.push(id);
      }
    }
    return Promise.resolve(errors);
  };
  const retryPolicy = {
    isRetryable: ({ code }: ApiError) => code === "busy",
    waitForRetry: () => Promise.resolve(running.clear()),
  };
  return { act, started, retryPolicy };
}

test("retryable failures are retried in order, one after another", async () => {
  const { act, started, retryPolicy } = oneAtATime(() => "schedule");
  const seen: string[] = [];
  const done = await runBulk(
    ids(20),
    act,
    ({ done, waiting }) => seen.push(`${done} ${waiting}`),
    signal(),
    retryPolicy,
  );
  expect(done).toEqual({ done: 20, errors: new Map(), notAttempted: [] });
  expect(started).toEqual(ids(20));
  expect(seen).toContain("1 19");
  expect(seen.at(-1)).toBe("20 0");
});

test("a waiting group does not delay another group", async () => {
  const { act, retryPolicy } = oneAtATime((id) => (Number(id.slice(1)) < 10 ? "first" : "second"));
  let turn = 0;
  const waitForRetry = () => {
    turn += 1;
    return retryPolicy.waitForRetry();
  };
  const done = await runBulk(ids(20), act, () => undefined, signal(), { ...retryPolicy, waitForRetry });
  expect(done.done).toBe(20);
  expect(turn).toBe(9);
});

test("a group behind many waiting ids gets its turn, and rounds stay small", async () => {
  const total = BATCH + 100;
  const last = `i${total - 1}`;
  const { act, retryPolicy, started } = oneAtATime((id) => (id === last || id === "i0" ? "second" : "first"));
  const stop = new AbortController();
  const sizes: number[] = [];
  const counted = (batch: readonly string[]) => {
    sizes.push(batch.length);
    // All ids of a request have the message of the first refused one.
    return act(batch).then((errors) => {
      const [message] = [...errors.values()].map((error) => error.message);
      return new Map([...errors.keys()].map((id) => [id, new ApiError("busy", 409, message ?? "")]));
    });
  };
  const waitForRetry = () => {
    if (started.includes(last) || sizes.length > 100) stop.abort();
    return retryPolicy.waitForRetry();
  };
  await runBulk(ids(total), counted, () => undefined, stop.signal, { ...retryPolicy, waitForRetry });
  expect(started).toContain(last);
  expect(Math.max(...sizes.slice(2))).toBeLessThanOrEqual(RETRIED);
});

test("an id that waits when the bulk action is stopped counts as failed, with its last error", async () => {
  const stop = new AbortController();
  const { act, retryPolicy } = oneAtATime(() => "schedule");
  let turn = 0;
  const waitForRetry = () => {
    turn += 1;
    if (turn === 3) stop.abort();
    return retryPolicy.waitForRetry();
  };
  const { done, errors } = await runBulk(ids(10), act, () => undefined, stop.signal, {
    ...retryPolicy,
    waitForRetry,
  });
  expect(done).toBe(3);
  expect([...errors.keys()]).toEqual(ids(10).slice(3));
  expect(errors.get("i9")?.code).toBe("busy");
});

test("matching items are found on all pages, up to the maximum", async () => {
  const read = (cursor: string | undefined) => {
    const page = Number(cursor ?? 0);
    const items = Array.from({ length: 1_000 }, (_, i) => ({ id: `${page}-${i}`, even: i % 2 === 0 }));
    return Promise.resolve({ items, next_cursor: page < 2 ? String(page + 1) : null });
  };
  expect((await findAll(read, (item) => item.even)).length).toBe(1_500);
  const endless = (cursor: string | undefined) =>
    read(undefined).then(({ items }) => ({ items, next_cursor: `${cursor ?? ""}x` }));
  expect((await findAll(endless, () => true)).length).toBe(BULK_MAX);
});

test("errors are grouped by code, the most frequent first", () => {
  const of = (code: string) => new ApiError(code, 409, code);
  const groups = groupErrors([of("a"), of("b"), of("b")]);
  expect(groups.map(({ example, count }) => [example.code, count])).toEqual([
    ["b", 2],
    ["a", 1],
  ]);
});

function signal(): AbortSignal {
  return new AbortController().signal;
}
