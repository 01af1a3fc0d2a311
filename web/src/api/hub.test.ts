import { beforeEach, expect, test, vi } from "vitest";

import { FEED, FOLLOWED_LOGS_MAX, type FromHub, Hub, readInIntervals } from "./hub";
import { Refusal } from "./problem";
import type { Followed } from "./sse";

interface Opened {
  way: "stream" | "intervals";
  path: string;
  lastId: string;
  followed: Followed;
  isClosed: boolean;
}

let opened: Opened[];
let hub: Hub;

beforeEach(() => {
  opened = [];
  const follow = (way: Opened["way"]) => (path: string, followed: Followed, lastId: string) => {
    const its: Opened = { way, path, lastId, followed, isClosed: false };
    opened.push(its);
    return () => (its.isClosed = true);
  };
  hub = new Hub(follow("stream"), follow("intervals"));
});

const live = () => opened.filter(({ isClosed }) => !isClosed);
const event = (id: number, name = "message") => ({ name, data: "{}", id: String(id) });

/** A tab, and what it was told. */
function tab() {
  const told: string[] = [];
  const page = hub.connect((message: FromHub) => {
    if (message.type === "opened") told.push(message.resumed ? "resumed" : "opened");
    else if (message.type === "events") told.push(...message.events.map(({ id }) => id));
    else if (message.type === "session") told.push(`session ${message.session}`);
    else if (message.type === "ping") told.push("ping");
    else told.push(message.why.code);
  });
  const open = (path: string, lastId = "", session = "ann") =>
    page.take({ type: "open", id: 1, path, lastId, session });
  const sign = (session: string) => page.take({ type: "session", session });
  return { told, open, sign, close: () => page.take({ type: "close", id: 1 }), leave: page.leave };
}

test("eight tabs have one feed between them, which is closed behind the last of them", () => {
  const tabs = Array.from({ length: 8 }, tab);
  for (const each of tabs) each.open(FEED);
  expect(live()).toHaveLength(1);
  live()[0]?.followed.onOpen?.(false, 0);
  live()[0]?.followed.onEvents([event(5)]);
  for (const each of tabs) expect(each.told).toEqual(["opened", "5"]);
  for (const each of tabs.slice(1)) each.leave();
  expect(live()).toHaveLength(1);
  tabs[0]?.close();
  expect(live()).toHaveLength(0);
});

test("a tab that comes back is told what it has missed, or that it must read again", () => {
  const [stays, goes] = [tab(), tab()];
  stays.open(FEED);
  goes.open(FEED);
  const feed = live()[0];
  feed?.followed.onOpen?.(false, 0);
  feed?.followed.onEvents([event(1), event(2)]);
  goes.close();
  feed?.followed.onEvents([event(3), event(4)]);
  goes.open(FEED, "2");
  expect(goes.told.slice(3)).toEqual(["resumed", "3", "4"]);
  goes.close();
  goes.open(FEED, "0");
  expect(goes.told.at(-1)).toBe("opened");
  // Events that are no longer kept cannot be told either.
  goes.close();
  feed?.followed.onEvents(Array.from({ length: 3_000 }, (_, i) => event(i + 5)));
  goes.open(FEED, "4");
  expect(goes.told.at(-1)).toBe("opened");
});

test("who joins while the feed is lost must read again, who was there before need not", () => {
  const [first, later] = [tab(), tab()];
  first.open(FEED);
  const feed = live()[0];
  feed?.followed.onOpen?.(false, 0);
  feed?.followed.onLost?.(new Refusal("unreachable", 0, "gone"));
  later.open(FEED, "7");
  feed?.followed.onOpen?.(true, 0);
  expect(first.told).toEqual(["opened", "unreachable", "resumed"]);
  expect(later.told).toEqual(["unreachable", "opened"]);
});

test("a refused feed is opened again for the next tab", () => {
  const one = tab();
  one.open(FEED);
  live()[0]?.followed.onRefused?.(new Refusal("unauthenticated", 401, "who are you"));
  expect(one.told).toEqual(["unauthenticated"]);
  expect(live()).toHaveLength(0);
  one.open(FEED);
  expect(live()).toHaveLength(1);
});

test("only so many logs have streams of their own, and a free one goes to the next", () => {
  const tabs = Array.from({ length: FOLLOWED_LOGS_MAX + 2 }, tab);
  tabs.forEach((each, i) => each.open(`/logs/${i}`));
  const ways = () => live().map(({ way, path, lastId }) => `${way} ${path} ${lastId}`);
  expect(ways()).toEqual(["stream /logs/0 ", "stream /logs/1 ", "intervals /logs/2 ", "intervals /logs/3 "]);
  live()[2]?.followed.onEvents([event(64, "log")]);
  live()[0]?.followed.onEvents([event(9, "log"), event(9, "end")]);
  expect(ways()).toEqual(["stream /logs/1 ", "intervals /logs/3 ", "stream /logs/2 64"]);
  expect(tabs[0]?.told).toEqual(["9", "9"]);
});

test("a sign-in as somebody else closes the streams of the session before", () => {
  const [stays, other] = [tab(), tab()];
  stays.open(FEED);
  other.open("/logs/1");
  const [feed, log] = opened;
  feed?.followed.onOpen?.(false, 0);
  feed?.followed.onEvents([event(1), event(2)]);

  // The first tab is frozen: it does not close what it has open.
  other.open(FEED, "1", "bob");
  expect([feed?.isClosed, log?.isClosed]).toEqual([true, true]);
  expect(live()).toHaveLength(1);
  expect(other.told, "nothing is kept of the session before").toEqual([]);
  live()[0]?.followed.onOpen?.(false, 0);
  live()[0]?.followed.onEvents([event(7)]);
  expect(other.told).toEqual(["opened", "7"]);
  expect(stays.told).toEqual(["opened", "1", "2", "session bob"]);

  // The first tab hears of it, and opens its streams again.
  stays.open(FEED, "", "bob");
  expect(live()).toHaveLength(1);
  expect(stays.told.at(-1)).toBe("opened");
});

test("a sign-out closes all streams, also those of a tab that does not answer", () => {
  const [frozen, leaves] = [tab(), tab()];
  frozen.open(FEED);
  frozen.sign("ann");
  expect(live(), "it is the same session").toHaveLength(1);
  leaves.open("/logs/1");
  leaves.sign("nobody");
  expect(live()).toHaveLength(0);
});

test("a tab that names an older session is told the newer one, and ends nothing", () => {
  const [ahead, behind] = [tab(), tab()];
  ahead.open(FEED, "", "2.x");
  live()[0]?.followed.onOpen?.(false, 0);
  behind.open(FEED, "5", "1.y");
  expect(behind.told).toEqual(["session 2.x"]);
  expect(opened, "nothing is opened for it").toHaveLength(1);
  behind.open(FEED, "", "2.x");
  live()[0]?.followed.onEvents([event(1)]);
  expect(ahead.told).toEqual(["opened", "1"]);
  expect(behind.told).toEqual(["session 2.x", "opened", "1"]);
  behind.sign("1.y");
  expect(behind.told.at(-1)).toBe("session 2.x");
  expect(live()).toHaveLength(1);
});

test("a tab whose streams are closed for a newer session is told, and may open them again at once", () => {
  const [one, two] = [tab(), tab()];
  one.open(FEED, "", "1.x");
  two.open(FEED, "", "2.x");
  expect(one.told).toEqual(["session 2.x"]);
  one.open(FEED, "", "2.x");
  expect(live()).toHaveLength(1);
  live()[0]?.followed.onOpen?.(false, 0);
  live()[0]?.followed.onEvents([event(1)]);
  expect(one.told).toEqual(["session 2.x", "opened", "1"]);
  expect(two.told).toEqual(["opened", "1"]);
});

test("the hub tells each tab that it is alive, until the tab leaves", () => {
  const [stays, leaves] = [tab(), tab()];
  hub.ping();
  leaves.leave();
  hub.ping();
  expect(stays.told).toEqual(["ping", "ping"]);
  expect(leaves.told).toEqual(["ping"]);
});

test("a log without a stream is read on at once while its pages are large, and then in intervals", async () => {
  vi.useFakeTimers();
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("removeEventListener", () => undefined);
  const MIB = 1024 * 1024;
  const asked: string[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    const offset = Number(new URLSearchParams(address.split("?")[1]).get("offset"));
    asked.push(`${offset / MIB}`);
    const next_offset = Math.min(offset + 4 * MIB, 10 * MIB);
    const items = [{ next_offset, at: "", stream: "stdout", text: "x" }];
    return Promise.resolve(Response.json({ items, next_offset, complete: false }));
  });
  const stop = readInIntervals("/logs/1?follow=true&offset=0", { onEvents: () => undefined }, "");
  await vi.advanceTimersByTimeAsync(100);
  expect(asked).toEqual(["0", "4", "8", "10"]);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(asked).toEqual(["0", "4", "8", "10", "10"]);
  stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
