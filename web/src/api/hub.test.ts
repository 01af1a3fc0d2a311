import { beforeEach, expect, test, vi } from "vitest";

import { FEED, FOLLOWED_LOGS_MAX, type HubMessage, Hub, pollLog } from "./hub";
import { ApiError } from "./errors";
import type { StreamHandlers } from "./sse";

interface Opened {
  mode: "stream" | "polling";
  path: string;
  lastId: string;
  handlers: StreamHandlers;
  isClosed: boolean;
}

let opened: Opened[];
let hub: Hub;

beforeEach(() => {
  opened = [];
  const follow = (mode: Opened["mode"]) => (path: string, handlers: StreamHandlers, lastId: string) => {
    const stream: Opened = { mode, path, lastId, handlers, isClosed: false };
    opened.push(stream);
    return () => (stream.isClosed = true);
  };
  hub = new Hub(follow("stream"), follow("polling"));
});

const openStreams = () => opened.filter(({ isClosed }) => !isClosed);
const event = (id: number, name = "message") => ({ name, data: "{}", id: String(id) });

/** A tab, with the messages that it received. */
function tab() {
  const received: string[] = [];
  const page = hub.connect((message: HubMessage) => {
    if (message.type === "opened") received.push(message.resumed ? "resumed" : "opened");
    else if (message.type === "events") received.push(...message.events.map(({ id }) => id));
    else if (message.type === "session") received.push(`session ${message.session}`);
    else if (message.type === "ping") received.push("ping");
    else received.push(message.error.code);
  });
  const open = (path: string, lastId = "", session = "ann") =>
    page.receive({ type: "open", id: 1, path, lastId, session });
  const sign = (session: string) => page.receive({ type: "session", session });
  return {
    received,
    open,
    sign,
    close: () => page.receive({ type: "close", id: 1 }),
    disconnect: page.disconnect,
  };
}

test("eight tabs share one feed, which closes after the last tab leaves", () => {
  const tabs = Array.from({ length: 8 }, tab);
  for (const each of tabs) each.open(FEED);
  expect(openStreams()).toHaveLength(1);
  openStreams()[0]?.handlers.onOpen?.(false, 0);
  openStreams()[0]?.handlers.onEvents([event(5)]);
  for (const each of tabs) expect(each.received).toEqual(["opened", "5"]);
  for (const each of tabs.slice(1)) each.disconnect();
  expect(openStreams()).toHaveLength(1);
  tabs[0]?.close();
  expect(openStreams()).toHaveLength(0);
});

test("a returning tab receives the events it missed, or must read everything again", () => {
  const [stays, goes] = [tab(), tab()];
  stays.open(FEED);
  goes.open(FEED);
  const feed = openStreams()[0];
  feed?.handlers.onOpen?.(false, 0);
  feed?.handlers.onEvents([event(1), event(2)]);
  goes.close();
  feed?.handlers.onEvents([event(3), event(4)]);
  goes.open(FEED, "2");
  expect(goes.received.slice(3)).toEqual(["resumed", "3", "4"]);
  goes.close();
  goes.open(FEED, "0");
  expect(goes.received.at(-1)).toBe("opened");
  // Events that have left the buffer cannot be delivered.
  goes.close();
  feed?.handlers.onEvents(Array.from({ length: 3_000 }, (_, i) => event(i + 5)));
  goes.open(FEED, "4");
  expect(goes.received.at(-1)).toBe("opened");
});

test("a tab that joins while the feed is lost must read everything again; an earlier tab resumes", () => {
  const [first, later] = [tab(), tab()];
  first.open(FEED);
  const feed = openStreams()[0];
  feed?.handlers.onOpen?.(false, 0);
  feed?.handlers.onLost?.(new ApiError("unreachable", 0, "gone"));
  later.open(FEED, "7");
  feed?.handlers.onOpen?.(true, 0);
  expect(first.received).toEqual(["opened", "unreachable", "resumed"]);
  expect(later.received).toEqual(["unreachable", "opened"]);
});

test("a refused feed is opened again on the next request", () => {
  const one = tab();
  one.open(FEED);
  openStreams()[0]?.handlers.onRefused?.(new ApiError("unauthenticated", 401, "who are you"));
  expect(one.received).toEqual(["unauthenticated"]);
  expect(openStreams()).toHaveLength(0);
  one.open(FEED);
  expect(openStreams()).toHaveLength(1);
});

test("at most FOLLOWED_LOGS_MAX logs have streams, and a free stream goes to the next log", () => {
  const tabs = Array.from({ length: FOLLOWED_LOGS_MAX + 2 }, tab);
  tabs.forEach((each, i) => each.open(`/logs/${i}`));
  const ways = () => openStreams().map(({ mode, path, lastId }) => `${mode} ${path} ${lastId}`);
  expect(ways()).toEqual(["stream /logs/0 ", "stream /logs/1 ", "polling /logs/2 ", "polling /logs/3 "]);
  openStreams()[2]?.handlers.onEvents([event(64, "log")]);
  openStreams()[0]?.handlers.onEvents([event(9, "log"), event(9, "end")]);
  expect(ways()).toEqual(["stream /logs/1 ", "polling /logs/3 ", "stream /logs/2 64"]);
  expect(tabs[0]?.received).toEqual(["9", "9"]);
});

test("a sign-in as another user closes the streams of the previous session", () => {
  const [stays, other] = [tab(), tab()];
  stays.open(FEED);
  other.open("/logs/1");
  const [feed, log] = opened;
  feed?.handlers.onOpen?.(false, 0);
  feed?.handlers.onEvents([event(1), event(2)]);

  // The first tab is frozen: it does not close its streams.
  other.open(FEED, "1", "bob");
  expect([feed?.isClosed, log?.isClosed]).toEqual([true, true]);
  expect(openStreams()).toHaveLength(1);
  expect(other.received, "no event of the previous session is delivered").toEqual([]);
  openStreams()[0]?.handlers.onOpen?.(false, 0);
  openStreams()[0]?.handlers.onEvents([event(7)]);
  expect(other.received).toEqual(["opened", "7"]);
  expect(stays.received).toEqual(["opened", "1", "2", "session bob"]);

  // The first tab receives the session message and reopens its streams.
  stays.open(FEED, "", "bob");
  expect(openStreams()).toHaveLength(1);
  expect(stays.received.at(-1)).toBe("opened");
});

test("a sign-out closes all streams, including those of an unresponsive tab", () => {
  const [frozen, leaves] = [tab(), tab()];
  frozen.open(FEED);
  frozen.sign("ann");
  expect(openStreams(), "it is the same session").toHaveLength(1);
  leaves.open("/logs/1");
  leaves.sign("nobody");
  expect(openStreams()).toHaveLength(0);
});

test("a tab that names an older session receives the newer one and closes nothing", () => {
  const [ahead, behind] = [tab(), tab()];
  ahead.open(FEED, "", "2.x");
  openStreams()[0]?.handlers.onOpen?.(false, 0);
  behind.open(FEED, "5", "1.y");
  expect(behind.received).toEqual(["session 2.x"]);
  expect(opened, "nothing is opened for it").toHaveLength(1);
  behind.open(FEED, "", "2.x");
  openStreams()[0]?.handlers.onEvents([event(1)]);
  expect(ahead.received).toEqual(["opened", "1"]);
  expect(behind.received).toEqual(["session 2.x", "opened", "1"]);
  behind.sign("1.y");
  expect(behind.received.at(-1)).toBe("session 2.x");
  expect(openStreams()).toHaveLength(1);
});

test("a tab is notified when a newer session closes its streams, and can reopen them at once", () => {
  const [one, two] = [tab(), tab()];
  one.open(FEED, "", "1.x");
  two.open(FEED, "", "2.x");
  expect(one.received).toEqual(["session 2.x"]);
  one.open(FEED, "", "2.x");
  expect(openStreams()).toHaveLength(1);
  openStreams()[0]?.handlers.onOpen?.(false, 0);
  openStreams()[0]?.handlers.onEvents([event(1)]);
  expect(one.received).toEqual(["session 2.x", "opened", "1"]);
  expect(two.received).toEqual(["opened", "1"]);
});

test("the hub pings each tab until the tab disconnects", () => {
  const [stays, leaves] = [tab(), tab()];
  hub.ping();
  leaves.disconnect();
  hub.ping();
  expect(stays.received).toEqual(["ping", "ping"]);
  expect(leaves.received).toEqual(["ping"]);
});

test("a polled log is read continuously while its pages are large, then at intervals", async () => {
  vi.useFakeTimers();
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("removeEventListener", () => undefined);
  const MIB = 1024 * 1024;
  const offsets: string[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    const offset = Number(new URLSearchParams(address.split("?")[1]).get("offset"));
    offsets.push(`${offset / MIB}`);
    const next_offset = Math.min(offset + 4 * MIB, 10 * MIB);
    const items = [{ next_offset, at: "", stream: "stdout", text: "x" }];
    return Promise.resolve(Response.json({ items, next_offset, complete: false }));
  });
  const stop = pollLog("/logs/1?follow=true&offset=0", { onEvents: () => undefined }, "");
  await vi.advanceTimersByTimeAsync(100);
  expect(offsets).toEqual(["0", "4", "8", "10"]);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(offsets).toEqual(["0", "4", "8", "10", "10"]);
  stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
