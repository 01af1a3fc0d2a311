import { expect, test } from "vitest";

import { isComplete, newSecretForm, NEW_VALUE, secretForm, secretSpec } from "./secrets";

test("a stored secret keeps its values unless the user replaces them", () => {
  const form = secretForm({ name: "db", namespace: "team", values: { user: "******", password: "******" } });
  expect(form.values.map(({ key, isStored }) => [key, isStored])).toEqual([
    ["password", true],
    ["user", true],
  ]);
  const values = form.values.map((each) => (each.key === "user" ? { ...each, value: "belfry" } : each));
  expect(secretSpec({ ...form, values })).toEqual({
    name: "db",
    namespace: "team",
    description: undefined,
    values: { password: "******", user: "belfry" },
  });
});

test("each value needs a key of its own and a text", () => {
  expect(isComplete(newSecretForm("default").values)).toBe(false);
  expect(isComplete([])).toBe(false);
  expect(isComplete([{ ...NEW_VALUE, key: "a", value: "x" }])).toBe(true);
  expect(isComplete([{ ...NEW_VALUE, key: "a" }])).toBe(false);
  const twice = { ...NEW_VALUE, key: "a", value: "x" };
  expect(isComplete([twice, { ...twice, key: "a " }])).toBe(false);
});
