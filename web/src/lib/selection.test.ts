import { expect, test } from "vitest";

import { inList, keepLeft, select } from "./selection";

const ids = new Set(["a", "b"]);

test("a list with another filter has no selection", () => {
  const selected = select("namespace=finance", ids);
  expect(inList(selected, "namespace=finance")).toBe(selected);
  const other = inList(selected, "namespace=people");
  expect(other.ids.size).toBe(0);
  expect(other.key).not.toBe(selected.key);
});

test("an action that is repeated on what it left has the same key, a new selection has another key", () => {
  const first = select("", ids);
  const left = keepLeft(first, new Set(["b"]));
  expect(left).toEqual({ ...first, ids: new Set(["b"]) });
  expect(select("", left.ids).key).not.toBe(first.key);
  expect(keepLeft(left, new Set()).key).not.toBe(first.key);
});
