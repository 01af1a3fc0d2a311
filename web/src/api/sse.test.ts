import { beforeAll, expect, test, vi } from "vitest";

import type { follow as followType, Parser as ParserType } from "./sse";

// The retry delay ends early when the browser fires `online`.
let Parser: typeof ParserType;
let follow: typeof followType;
beforeAll(async () => {
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("removeEventListener", () => undefined);
  ({ follow, Parser } = await import("./sse"));
});

test("events are complete wherever the stream is split", () => {
  const stream =
    'retry: 2000\n: belfry\n\nid: 7\nevent: log\ndata: {"a":\ndata: 1}\n\nid: 8\ndata: x\r\n\r\n';
  const expected = [
    { name: "log", data: '{"a":\n1}', id: "7" },
    { name: "message", data: "x", id: "8" },
  ];
  for (let cut = 0; cut <= stream.length; cut += 1) {
    const parser = new Parser();
    const events = [...parser.push(stream.slice(0, cut)), ...parser.push(stream.slice(cut))];
    expect(events, `cut at ${cut}`).toEqual(expected);
  }
});

test("a heartbeat advances the id from which a lost stream resumes", () => {
  const parser = new Parser("3");
  expect(parser.push(": \nid: 9\n\n")).toEqual([]);
  expect(parser.lastId).toBe("9");
});

test("an event that is lost before its end is received again", () => {
  const parser = new Parser("3");
  expect(parser.push("id: 9\ndata: x\n")).toEqual([]);
  expect(parser.lastId).toBe("3");
});

test("a stream that ends at once means that there is no leader; a stream that lasts is open", async () => {
  vi.useFakeTimers();
  const lasting = new ReadableStream({
    start: (stream) => stream.enqueue(new TextEncoder().encode(": hi\n\n")),
  });
  const answers = [new Response(": hi\n\n"), new Response(lasting)];
  vi.stubGlobal("fetch", () => Promise.resolve(answers.shift()));
  const received: string[] = [];
  const stop = follow("http://belfry.test/api/v1/events", {
    onOpen: () => received.push("open"),
    onLost: (error) => received.push(error.code),
    onEvents: () => received.push("events"),
  });
  await vi.advanceTimersByTimeAsync(2_000);
  expect(received).toEqual(["loading", "open"]);
  stop();
  vi.useRealTimers();
});
