import { beforeAll, expect, test, vi } from "vitest";

import type { Parser as ParserType } from "./sse";

// The client that streams are opened with belongs to a browser's page.
let Parser: typeof ParserType;
beforeAll(async () => {
  vi.stubGlobal("location", { origin: "http://localhost" });
  ({ Parser } = await import("./sse"));
});

test("events come out whole, however the stream is cut", () => {
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

test("a heartbeat moves the place from which a lost stream resumes", () => {
  const parser = new Parser("3");
  expect(parser.push(": \nid: 9\n\n")).toEqual([]);
  expect(parser.lastId).toBe("9");
});
