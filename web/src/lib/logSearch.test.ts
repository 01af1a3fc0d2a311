import { expect, test } from "vitest";

import type { LogPage } from "../api/schema";
import { HITS_MAX, type LogSearch, searchLog } from "./logSearch";

/** Reads a log in windows of `entries` entries; offsets count entries. */
function windows(texts: readonly string[], entries: number, stream: (i: number) => string = () => "stdout") {
  return (offset: number): Promise<LogPage> => {
    const items = texts.slice(offset, offset + entries).map((text, i) => ({
      next_offset: offset + i + 1,
      at: "2026-11-21T00:00:00Z",
      stream: stream(offset + i),
      text,
    }));
    return Promise.resolve({ items, next_offset: offset + items.length, complete: false });
  };
}

const anywhere = (text: string) => ({ text, includesStream: () => true });
const none = () => undefined;
const signal = () => new AbortController().signal;

test("hits have the correct line numbers in every window", async () => {
  const texts = Array.from({ length: 95 }, (_, i) => `row ${i + 1}\n`);
  const seen: LogSearch[] = [];
  const found = await searchLog(
    windows(texts, 10),
    95,
    anywhere("ROW 9"),
    (each) => seen.push(each),
    signal(),
  );
  expect(found).toEqual({ hits: [9, 90, 91, 92, 93, 94, 95], lines: 95, fraction: 1, capped: false });
  expect(seen[0]).toEqual({ hits: [9], lines: 10, fraction: 10 / 95, capped: false });
});

test("a line split between windows is found, and so is an incomplete line", async () => {
  const texts = ["a\nnee", "dle\nb\n", "the nee", "dle"];
  for (const entries of [1, 2, 3, 4]) {
    const found = await searchLog(windows(texts, entries), 4, anywhere("needle"), none, signal());
    expect(found.hits, `windows of ${entries}`).toEqual([2, 4]);
  }
});

test("a window of very many short lines is searched from its first line", async () => {
  const texts = ["needle\n" + "x\n".repeat(70_000), "needle\n"];
  const found = await searchLog(windows(texts, 2), 2, anywhere("needle"), none, signal());
  expect(found.hits).toEqual([1, 70_002]);
});

test("lines of other streams are counted but not matched", async () => {
  const texts = ["x\n", "x\n", "x\n", "x\n"];
  const read = windows(texts, 2, (i) => (i % 2 ? "stderr" : "stdout"));
  const wanted = { text: "x", includesStream: (stream: string) => stream === "stderr" };
  expect((await searchLog(read, 4, wanted, none, signal())).hits).toEqual([2, 4]);
});

test("a search stops at the maximum number of hits and reports that it is capped", async () => {
  const texts = Array.from({ length: 30 }, () => "x\n".repeat(1_000));
  const found = await searchLog(windows(texts, 4), 30, anywhere("x"), none, signal());
  expect(found.hits.length).toBe(HITS_MAX);
  expect(found.capped).toBe(true);
  expect(found.fraction).toBeLessThan(1);
});

test("a stopped search keeps its hits", async () => {
  const stop = new AbortController();
  const texts = Array.from({ length: 50 }, () => "x\n");
  const onProgress = ({ lines }: LogSearch) => lines >= 20 && stop.abort();
  const found = await searchLog(windows(texts, 10), 50, anywhere("x"), onProgress, stop.signal);
  expect(found.hits.length).toBe(20);
});

test("a growing log is searched up to its end at the start", async () => {
  const texts = Array.from({ length: 50 }, () => "x\n");
  const found = await searchLog(windows(texts, 10), 20, anywhere("x"), none, signal());
  expect(found.hits.length).toBe(20);
});
