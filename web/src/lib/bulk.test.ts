import { expect, test } from "vitest";

import { actOnAll, BULK_MAX, findAll } from "./bulk";

const ids = (count: number) => Array.from({ length: count }, (_, i) => `i${i}`);

test("each is acted on once, and what is refused does not keep the others back", async () => {
  const acted: string[] = [];
  const act = (id: string) => {
    acted.push(id);
    return id === "i3" ? Promise.reject(new Error("refused")) : Promise.resolve();
  };
  const seen: number[] = [];
  const done = await actOnAll(ids(20), act, ({ done, failed }) => seen.push(done + failed), signal());
  expect(done).toEqual({ done: 19, failed: 1 });
  expect(acted.sort()).toEqual(ids(20).sort());
  expect(seen.at(-1)).toBe(20);
});

test("what was stopped begins nothing more", async () => {
  const stop = new AbortController();
  let acted = 0;
  const act = () => {
    acted += 1;
    if (acted === 6) stop.abort();
    return Promise.resolve();
  };
  await actOnAll(ids(100), act, () => undefined, stop.signal);
  expect(acted).toBeLessThan(13);
});

test("what fits is found on all pages, up to a bound", async () => {
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

function signal(): AbortSignal {
  return new AbortController().signal;
}
