import { expect, test } from "vitest";

import { csvCell, csvRow, exportList, labelsCell } from "./export";

interface Row {
  id: number;
  name: string;
}

/** A list of `total` rows, in pages of two. */
function source(total: number, cursors: Array<string | undefined> = []) {
  return {
    read: (cursor: string | undefined) => {
      cursors.push(cursor);
      const from = Number(cursor ?? 0);
      const items = Array.from({ length: Math.min(2, total - from) }, (_, i) => ({
        id: from + i,
        name: `job-${from + i}`,
      }));
      return Promise.resolve({ items, next_cursor: from + 2 < total ? String(from + 2) : null });
    },
    columns: [
      ["id", (row: Row) => row.id],
      ["name", (row: Row) => row.name],
    ] as Array<[string, (row: Row) => string | number]>,
  };
}
const signal = new AbortController().signal;

test("a text that a spreadsheet would run as a formula is escaped", () => {
  expect(["=1+1", "+1", "-1", "@sum", "\tx"].map(csvCell)).toEqual(["'=1+1", "'+1", "'-1", "'@sum", "'\tx"]);
  expect(csvCell('=HYPERLINK("x")')).toBe(`"'=HYPERLINK(""x"")"`);
  expect(csvCell(-1), "a number is no formula").toBe("-1");
  expect(csvCell("a-b")).toBe("a-b");
});

test("quotes, separators and line ends are quoted, and a missing value is empty", () => {
  expect(csvRow(['say "hi"', "a,b", "one\ntwo", null, undefined, 0])).toBe(
    '"say ""hi""","a,b","one\ntwo",,,0\r\n',
  );
  expect(labelsCell({ team: "pay", gpu: "" })).toBe("team=pay gpu");
});

test("all pages are exported, with progress after each", async () => {
  const cursors: Array<string | undefined> = [];
  const progress: number[] = [];
  const { blob, rows, isCut } = await exportList(
    source(5, cursors),
    "csv",
    (count) => progress.push(count),
    signal,
  );
  expect(cursors).toEqual([undefined, "2", "4"]);
  expect(progress).toEqual([2, 4, 5]);
  expect([rows, isCut]).toEqual([5, false]);
  expect((await blob.text()).replace("\uFEFF", "").split("\r\n")).toEqual([
    "id,name",
    ...[0, 1, 2, 3, 4].map((id) => `${id},job-${id}`),
    "",
  ]);
});

test("JSON is an array of the rows of the API, also if there are none", async () => {
  const json = async (total: number) =>
    JSON.parse(await (await exportList(source(total), "json", () => {}, signal)).blob.text()) as Row[];
  expect((await json(3)).map(({ id }) => id)).toEqual([0, 1, 2]);
  expect(await json(0)).toEqual([]);
});

test("a longer list is cut at the limit, and says so", async () => {
  const cut = (total: number) => exportList(source(total), "csv", () => {}, signal, 3);
  expect(await cut(9)).toMatchObject({ rows: 3, isCut: true });
  expect(await cut(4), "in the middle of the last page").toMatchObject({ rows: 3, isCut: true });
  expect(await cut(3)).toMatchObject({ rows: 3, isCut: false });
});

test("an export that the user stops ends with an error", async () => {
  const stop = new AbortController();
  const stopped = exportList(source(9), "csv", () => stop.abort(), stop.signal);
  await expect(stopped).rejects.toThrow(/abort/i);
});
