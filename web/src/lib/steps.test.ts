/** C1, H1. Edits of a workflow definition by a form. */

import { expect, test } from "vitest";
import { parse } from "yaml";

import type { WorkflowSpec } from "../api/schema";
import { setMember } from "./spec";
import {
  addStep,
  type Change,
  unusedName,
  toListField,
  parseListField,
  removeStep,
  renameStep,
  changeStepKind,
} from "./steps";

const TEXT = `name: nightly
steps:
  # the figures
  - name: extract
    job: {run: {process: {command: [echo]}}}
  - name: load
    needs: [extract]
    job: {run: {process: {command: [echo]}}}
  - name: report
    needs: [load]
    approval: {}
`;

const read = (text: string) => parse(text) as WorkflowSpec;
const after = (changes: Change[], text = TEXT) =>
  changes.reduce((before, { path, value }) => setMember(before, path, value), text);

test("a new step depends on the last one and has an unused name", () => {
  const spec = read(after(addStep(read(TEXT), "steps")));
  expect(spec.steps[3]).toMatchObject({ name: "step-4", needs: ["report"] });
  expect(unusedName(spec)).toBe("step-5");
  const cleaning = read(after(addStep(read(TEXT), "finally")));
  expect(cleaning.finally?.map(({ name, needs }) => [name, needs])).toEqual([["step-4", undefined]]);
});

test("downstream steps of a removed step depend on its upstream steps", () => {
  const text = after(removeStep(read(TEXT), "steps", 1));
  expect(read(text).steps.map(({ name, needs }) => [name, needs])).toEqual([
    ["extract", undefined],
    ["report", ["extract"]],
  ]);
  expect(text).toContain("# the figures");
  const first = read(after(removeStep(read(TEXT), "steps", 0))).steps;
  expect(first[0]?.needs).toBeUndefined();
});

test("renaming a step renames it in its downstream steps", () => {
  const { steps } = read(after(renameStep(read(TEXT), "steps", 0, "fetch")));
  expect([steps[0]?.name, steps[1]?.needs]).toEqual(["fetch", ["fetch"]]);
});

test("renaming or removing a step updates `added_by` of other steps", () => {
  const text = TEXT.replace(
    "    needs: [load]\n    approval: {}\n",
    "    for_each: {over: {added_by: [extract, load]}}\n    job: {run: {process: {command: [echo]}}}\n",
  );
  const over = (text: string) => read(text).steps.at(-1)?.for_each?.over;
  expect(over(after(renameStep(read(text), "steps", 0, "fetch"), text))).toEqual({
    added_by: ["fetch", "load"],
  });
  expect(over(after(removeStep(read(text), "steps", 0), text))).toEqual({ added_by: ["load"] });
});

test("a step has one kind", () => {
  const { steps } = read(after(changeStepKind("steps", 0, "wait")));
  expect(steps[0]).toEqual({ name: "extract", wait: { for: "10m" } });
  expect(read(after(changeStepKind("steps", 2, "approval"))).steps[2]?.approval).toEqual({});
});

test("a list survives a round trip through its field", () => {
  for (const over of [
    { items: ["eu", "cn"] },
    { list: "params.regions" },
    { shards: 8 },
    { added_by: ["split", "page"] },
  ]) {
    const { kind, text } = toListField({ over });
    expect(parseListField(kind, text)).toEqual(over);
  }
  expect(toListField(undefined).kind).toBe("none");
  expect(toListField({ over: { workers: [] } }).kind).toBe("workers");
});
