import { expect, test } from "vitest";

import { type Column, gridTracks, visibleColumns } from "./columns";

const COLUMNS: Column[] = [
  { name: "name", width: 200, grows: true, rank: 0 },
  { name: "queue", width: 100, rank: 1 },
  { name: "owner", width: 100, rank: 2 },
  { name: "end", width: 100, rank: 3 },
];
const shown = (width: number, choice = {}) =>
  visibleColumns(COLUMNS, (name) => name !== "end", choice, width, 10).map(({ name }) => name);

test("columns are shown by default, or as the user chose", () => {
  expect(shown(1_000)).toEqual(["name", "queue", "owner"]);
  expect(shown(1_000, { end: true, queue: false })).toEqual(["name", "owner", "end"]);
  expect(shown(1_000, { name: false }), "the name identifies the row").toContain("name");
});

test("columns that do not fit are hidden by rank, those that the user chose last", () => {
  expect(shown(420)).toEqual(["name", "queue", "owner"]);
  expect(shown(419)).toEqual(["name", "queue"]);
  expect(shown(420, { end: true })).toEqual(["name", "queue", "end"]);
  expect(shown(50)).toEqual(["name"]);
});

test("the grid has a track per column", () => {
  expect(gridTracks(COLUMNS.slice(0, 2))).toBe("minmax(200px, 1fr) 100px");
});
