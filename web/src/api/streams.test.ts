/** A page and the browser's hub: streams are reopened when the hub is gone or missing. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { HubMessage, HubRequest } from "./hub";

/** Shared workers that the page has connected to, with the messages posted to each. */
let workers: FakeWorker[];
let isHidden: boolean;
let onVisibility: () => void;

class FakeWorker {
  posted: HubRequest[] = [];
  isClosed = false;
  onerror: (() => void) | null = null;
  port = {
    onmessage: null as ((event: { data: HubMessage }) => void) | null,
    postMessage: (message: HubRequest) => void this.posted.push(message),
    close: () => void (this.isClosed = true),
  };
  constructor() {
    workers.push(this);
  }
  send(message: HubMessage): void {
    this.port.onmessage?.({ data: message });
  }
  get opened(): string[] {
    return this.posted.flatMap((each) => (each.type === "open" ? [`${each.path} ${each.lastId}`] : []));
  }
}

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  workers = [];
  isHidden = false;
  vi.stubGlobal("SharedWorker", FakeWorker);
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("removeEventListener", () => undefined);
  vi.stubGlobal("document", {
    get hidden() {
      return isHidden;
    },
    addEventListener: (name: string, listener: () => void) => {
      if (name === "visibilitychange") onVisibility = listener;
    },
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function show(shown: boolean): void {
  isHidden = !shown;
  onVisibility();
}

async function begin() {
  const [{ follow, watchVisibility }, { FEED }] = await Promise.all([import("./streams"), import("./hub")]);
  watchVisibility();
  const received: string[] = [];
  const handlers = (name: string) => ({
    onOpen: (resumed: boolean) => void received.push(`${name} ${resumed ? "resumed" : "opened"}`),
    onEvents: () => void received.push(`${name} events`),
  });
  follow(FEED, handlers("feed"));
  follow("/logs/1", handlers("log"));
  return { FEED, received };
}

const events = (id: number, last: string): HubMessage => ({
  id,
  type: "events",
  events: [{ name: "message", data: "{}", id: last }],
});
const SECOND = 1_000;

test("a page reconnects to a silent shared worker and reads everything again", async () => {
  const { FEED, received } = await begin();
  const [first] = workers;
  first?.send(events(1, "7"));
  first?.send(events(2, "64"));
  for (let i = 0; i < 10; i += 1) {
    await vi.advanceTimersByTimeAsync(15 * SECOND);
    first?.send({ type: "ping" });
  }
  expect(workers, "it is alive").toHaveLength(1);

  await vi.advanceTimersByTimeAsync(39 * SECOND);
  expect(workers).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(11 * SECOND);
  expect(workers).toHaveLength(2);
  expect(first?.isClosed).toBe(true);
  expect(workers[1]?.opened, "the log resumes, the feed restarts").toEqual([`${FEED} `, "/logs/1 64"]);
  first?.send({ id: 1, type: "opened", resumed: true, since: 0 });
  workers[1]?.send({ id: 1, type: "opened", resumed: false, since: 0 });
  expect(received).toEqual(["feed events", "log events", "feed opened"]);
});

test("a hidden page does not expect pings, and restarts the timeout when it is shown", async () => {
  await begin();
  await vi.advanceTimersByTimeAsync(30 * SECOND);
  show(false);
  await vi.advanceTimersByTimeAsync(300 * SECOND);
  show(true);
  await vi.advanceTimersByTimeAsync(30 * SECOND);
  expect(workers).toHaveLength(1);
});

test("a page whose worker never responds reads its streams itself", async () => {
  const fetched: string[] = [];
  vi.stubGlobal("fetch", (path: string) => {
    fetched.push(path);
    return new Promise(() => undefined);
  });
  const { FEED } = await begin();
  await vi.advanceTimersByTimeAsync(50 * SECOND);
  expect(workers, "no second worker is started").toHaveLength(1);
  expect(fetched).toEqual([FEED, "/logs/1"]);
});

test("a page reopens its streams in the session that the hub reports", async () => {
  const { FEED } = await begin();
  const [worker] = workers;
  worker?.send(events(1, "7"));
  worker?.send({ type: "session", session: "9.x" });
  const reopened = worker?.posted.slice(2);
  expect(reopened).toEqual([
    { type: "open", id: 1, path: FEED, lastId: "", session: "9.x" },
    { type: "open", id: 2, path: "/logs/1", lastId: "", session: "9.x" },
  ]);
});

test("a hidden page without a shared hub closes its feed soon, even if it was hidden before", async () => {
  const signals: AbortSignal[] = [];
  vi.stubGlobal("fetch", (_: string, { signal }: { signal: AbortSignal }) => {
    signals.push(signal);
    return new Promise(() => undefined);
  });
  const { FEED } = await begin();
  show(false);
  workers[0]?.onerror?.();
  expect(signals, FEED).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(11 * SECOND);
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
});

test("a held feed stays open while the page is hidden, and closes when it is released", async () => {
  const { FEED } = await begin();
  const { holdFeed } = await import("./streams");
  const closed = () => workers[0]?.posted.filter(({ type }) => type === "close").length;
  const release = holdFeed();
  show(false);
  await vi.advanceTimersByTimeAsync(700_000);
  expect(closed(), "the log is closed, the feed is not").toBe(1);
  release();
  expect(closed()).toBe(2);
  show(true);
  expect(workers[0]?.opened.filter((each) => each.startsWith(FEED))).toHaveLength(2);
});
