import { expect, test } from "vitest";

import { hasSeveralNamespaces, isAllNamespaces, namespaceChoices, scopedSearch } from "./namespaces";

test("links to lists carry the remembered namespace, and links to other pages do not", () => {
  expect(scopedSearch("/jobs", "finance")).toEqual({ namespace: "finance" });
  expect(scopedSearch("/failures", "finance")).toEqual({ namespace: "finance" });
  expect(scopedSearch("/runs", null)).toEqual({});
  expect(scopedSearch("/queues", "finance")).toEqual({});
});

test("the namespace of an address can be chosen, even if it has no jobs", () => {
  expect(namespaceChoices(["ops", "default"], "new", null, "*", "ops")).toEqual(["default", "new", "ops"]);
});

test("no namespace and the wildcard both mean all", () => {
  expect([undefined, null, "", "*", "default"].map(isAllNamespaces)).toEqual([true, true, true, true, false]);
});

test("rows of several namespaces are recognized", () => {
  expect(hasSeveralNamespaces([])).toBe(false);
  expect(hasSeveralNamespaces([{ namespace: "a" }, { namespace: "a" }])).toBe(false);
  expect(hasSeveralNamespaces([{ namespace: "a" }, { namespace: "a" }, { namespace: "b" }])).toBe(true);
});
