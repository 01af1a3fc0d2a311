import { describe, expect, test } from "vitest";

import type { LogSearch as LogSearchPage } from "../api/schema";
import { HITS_MAX, matcher, searchLog, type LogHits, type LogQuery } from "./logSearch";

type Line = string | { stream: string; text: string };

/** A server with these lines, and the requests that it has received. */
function server(lines: readonly Line[], complete = true, pageLines = Infinity) {
  const requests: Array<Record<string, string>> = [];
  const fetchPage = (parameters: Record<string, string>): Promise<LogSearchPage> => {
    requests.push(parameters);
    const { text, line = "1", cursor, limit } = parameters;
    const from = Number(cursor ?? Number(line) - 1);
    const all = lines.map((each) => (typeof each === "string" ? { stream: "stdout", text: each } : each));
    const items: LogSearchPage["items"] = [];
    let at = from;
    for (; at < lines.length && at < from + pageLines && items.length < Number(limit); at += 1) {
      const line = all[at];
      if (!line || !text || !line.text.includes(text)) continue;
      items.push({ ...line, number: at + 1, at: "2026-11-21T00:00:00Z", before: [], after: [] });
    }
    const isEnd = at >= lines.length;
    return Promise.resolve({
      items,
      lines: at,
      complete: isEnd && complete,
      next_cursor: isEnd ? null : String(at),
    });
  };
  return { requests, fetchPage };
}

const query = (pattern: string, stream = "all"): LogQuery => ({ pattern, isRegex: false, stream });
const none = () => undefined;
const signal = () => new AbortController().signal;

test("all pages are read, and each of them is reported", async () => {
  const rows = Array.from({ length: 95 }, (_, i) => `row ${i + 1}`);
  const { requests, fetchPage } = server(rows, true, 40);
  const seen: LogHits[] = [];
  const found = await searchLog(fetchPage, query("row 9"), null, (each) => seen.push(each), signal());
  expect(found).toEqual({ hits: [9, 90, 91, 92, 93, 94, 95], lines: 95, hasMore: false, complete: true });
  expect(seen).toEqual([
    { hits: [9], lines: 40, hasMore: true, complete: false },
    { hits: [9], lines: 80, hasMore: true, complete: false },
    found,
  ]);
  expect(requests).toEqual([
    { text: "row 9", limit: "1000" },
    { text: "row 9", limit: "1000", cursor: "40" },
    { text: "row 9", limit: "1000", cursor: "80" },
  ]);
});

test("a regular expression is sent as one", async () => {
  const { requests, fetchPage } = server(["a"]);
  await searchLog(fetchPage, { pattern: "^a$", isRegex: true, stream: "all" }, null, none, signal());
  expect(requests).toEqual([{ regex: "^a$", limit: "1000" }]);
});

test("lines of other streams count as lines, but not as hits", async () => {
  const lines = ["stdout", "stderr", "stdout", "notice", "stderr"].map((stream) => ({ stream, text: "x" }));
  const { requests, fetchPage } = server(lines);
  expect((await searchLog(fetchPage, query("x", "stderr"), null, none, signal())).hits).toEqual([2, 5]);
  // The server numbers the lines of selected streams only.
  expect(requests[0]).not.toHaveProperty("stream");
});

test("a search of a grown log repeats the last lines, which may have been incomplete", async () => {
  const before = server(["x", "x", "x", "y", "y x"], false);
  const found = await searchLog(before.fetchPage, query("x"), null, none, signal());
  expect(found).toEqual({ hits: [1, 2, 3, 5], lines: 5, hasMore: false, complete: false });
  const after = server(["x", "x", "y", "y x", "y x", "x"]);
  const more = await searchLog(after.fetchPage, query("x"), found, none, signal());
  expect(more).toEqual({ hits: [1, 2, 4, 5, 6], lines: 6, hasMore: false, complete: true });
  expect(after.requests).toEqual([{ text: "x", limit: "1000", line: "3" }]);
});

test("a search stops at the maximum number of hits and reports that there is more", async () => {
  const lines = Array.from({ length: HITS_MAX + 5_000 }, (_, i) => (i % 2 ? "y" : "x y"));
  const { requests, fetchPage } = server(lines);
  const found = await searchLog(fetchPage, query("y"), null, none, signal());
  expect(found.hits.length).toBe(HITS_MAX);
  expect(found).toMatchObject({ lines: HITS_MAX, hasMore: true, complete: false });
  expect(requests.length).toBe(HITS_MAX / 1_000);
});

test("a stopped search reports nothing any more", async () => {
  const { requests, fetchPage } = server(Array<string>(50).fill("x"), true, 10);
  const stop = new AbortController();
  const seen: number[] = [];
  const onProgress = ({ hits }: LogHits) => {
    seen.push(hits.length);
    if (hits.length >= 20) stop.abort();
  };
  await expect(searchLog(fetchPage, query("x"), null, onProgress, stop.signal)).rejects.toThrow();
  expect(seen).toEqual([10, 20]);
  expect(requests.length).toBe(3);
});

describe("matches in a displayed line", () => {
  const find = (pattern: string, text: string, isRegex = false) =>
    matcher({ pattern, isRegex })(text).map(([from, to]) => text.slice(from, to));

  test("of a text ignore letter case", () => {
    expect(matcher({ pattern: "ERROR", isRegex: false })("Error: error")).toEqual([
      [0, 5],
      [7, 12],
    ]);
    expect(find("a.b", "a.b axb A.B")).toEqual(["a.b", "A.B"]);
    expect(find("[x] \\ /-{", "[X] \\ /-{")).toEqual(["[X] \\ /-{"]);
    // The lower case of `İ` has another length.
    expect(matcher({ pattern: "x", isRegex: false })("İx")).toEqual([[1, 2]]);
    expect(find("", "abc")).toEqual([]);
  });

  test("of a regular expression respect letter case, unless it says otherwise", () => {
    expect(find("r[a-z]+", "Row row", true)).toEqual(["row"]);
    expect(find("(?i)r[a-z]+", "Row row", true)).toEqual(["Row", "row"]);
    expect(find("(?P<word>ro)w", "row", true)).toEqual(["row"]);
    expect(find("x*", "axxb", true)).toEqual(["xx"]);
  });

  test("are not located if only the server can do it, or only the server fast", () => {
    expect(find("[[:alpha:]]", "abc", true)).toEqual([]);
    expect(find("(?x) a b", "ab", true)).toEqual([]);
    const startedAt = performance.now();
    expect(find("(a+)+$", `${"a".repeat(50)}b`, true)).toEqual([]);
    expect(find("a+b+c+d+$", "a".repeat(5_000), true)).toEqual([]);
    expect(find("a?".repeat(30) + "a".repeat(30), "a".repeat(29), true)).toEqual([]);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});
