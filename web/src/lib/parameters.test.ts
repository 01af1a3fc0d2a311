/** C1, H1. The parameter form of a run. */

import { expect, test } from "vitest";

import type { Parameter } from "../api/schema";
import { initialFields, fieldHintsOf, parseFields } from "./parameters";

const PARAMETERS: Record<string, Parameter> = {
  day: { type: "string" },
  count: { type: "integer", default: 3 },
  ratio: { type: "number", default: 0.5 },
  dry: { type: "boolean", default: false },
  regions: { type: "array", default: ["eu", "cn"] },
  extra: { type: "object", default: {} },
};

test("fields start with the defaults, and unchanged defaults are not sent", () => {
  const fields = initialFields(PARAMETERS);
  expect(fields).toMatchObject({ day: "", count: "3", dry: "false", regions: '["eu","cn"]' });
  expect(parseFields(PARAMETERS, fields)).toEqual({ values: {}, problems: { day: "missing" } });
});

test("fields can start with the values of another run", () => {
  expect(initialFields(PARAMETERS, { day: "today", count: 7, regions: [] })).toMatchObject({
    ...{ day: "today", count: "7", regions: "[]", ratio: "0.5" },
  });
});

test("entered values are sent with their types", () => {
  const fields = {
    ...initialFields(PARAMETERS),
    ...{ day: "2026-11-21", count: "12", ratio: "1e3", dry: "true" },
    ...{ regions: '["us"]', extra: '{"a": 1}' },
  };
  expect(parseFields(PARAMETERS, fields)).toEqual({
    values: { day: "2026-11-21", count: 12, ratio: 1_000, dry: true, regions: ["us"], extra: { a: 1 } },
    problems: {},
  });
});

test("every invalid value is reported", () => {
  const wrong = { day: "x", count: "1.5", ratio: "much", dry: "true", regions: "{}", extra: "[" };
  expect(parseFields(PARAMETERS, wrong).problems).toEqual({
    ...{ count: "noInteger", ratio: "noNumber", regions: "noArray", extra: "noObject" },
  });
});

test("a schema provides choices, bounds and examples", () => {
  const schema = { enum: ["eu", "cn"], minimum: 1, maximum: 31, maxLength: 10, examples: [{ a: 1 }] };
  expect(fieldHintsOf({ type: "string", schema })).toEqual({
    ...{ choices: ["eu", "cn"], minimum: 1, maximum: 31, maxLength: 10, example: '{"a":1}' },
  });
  expect(fieldHintsOf({ type: "string" }).choices).toBeNull();
});
