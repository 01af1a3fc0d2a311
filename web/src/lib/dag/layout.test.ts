/** C1, H1. Layouts of workflow graphs. */

import { expect, test } from "vitest";

import { type DagNode, dagFromSpec, dagFromRunSteps, relatedSteps, layoutKeyOf } from "./graph";
import { curvePath, layOut, NODE_HEIGHT, NODE_WIDTH } from "./layout";

function nodes(edges: Record<string, string[]>, section: DagNode["section"] = "steps"): DagNode[] {
  return Object.entries(edges).map(([name, needs]) => ({
    ...{ name, needs, addedBy: [], section, kind: "job" as const },
    ...{ isMap: false, isConditional: false },
  }));
}

const DIAMOND = { a: [], b: ["a"], c: ["a"], d: ["b", "c"] };

test.each(["quick", "careful"] as const)(
  "%s: a step is right of its upstream steps, and no steps overlap",
  (how) => {
    const { positions, edges, width, height } = layOut(nodes(DIAMOND), how);
    const x = (name: string) => positions.get(name)?.x ?? NaN;
    expect(x("a") + NODE_WIDTH).toBeLessThan(x("b"));
    expect(x("b")).toBe(x("c"));
    expect(x("c") + NODE_WIDTH).toBeLessThan(x("d"));
    const apart = Math.abs((positions.get("b")?.y ?? 0) - (positions.get("c")?.y ?? 0));
    expect(apart).toBeGreaterThanOrEqual(NODE_HEIGHT);
    expect(edges.map(({ from, to }) => `${from}${to}`).sort()).toEqual(["ab", "ac", "bd", "cd"]);
    for (const { x, y } of positions.values()) {
      expect(x >= 0 && x + NODE_WIDTH <= width + 1 && y >= 0 && y + NODE_HEIGHT <= height + 1).toBe(true);
    }
  },
);

test.each(["quick", "careful"] as const)("%s: sections are stacked in their order", (how) => {
  const all = [...nodes({ clean: [] }, "finally"), ...nodes(DIAMOND), ...nodes({ alert: [] }, "on_failure")];
  const { bands, positions } = layOut(all, how);
  expect(bands.map(({ section }) => section)).toEqual(["steps", "on_failure", "finally"]);
  const y = (name: string) => positions.get(name)?.y ?? NaN;
  expect(y("d") < y("alert") && y("alert") < y("clean")).toBe(true);
});

test.each(["quick", "careful"] as const)("%s: a draft with a cycle has a layout too", (how) => {
  const { positions } = layOut(nodes({ a: ["c"], b: ["a"], c: ["b"] }), how);
  expect(positions.size).toBe(3);
});

test("ten thousand steps are laid out quickly, each at its own position", () => {
  const many = Object.fromEntries(
    Array.from({ length: 10_000 }, (_, i) => [`s${i}`, i < 100 ? [] : [`s${i - 100}`, `s${i - 73}`]]),
  );
  const { positions } = layOut(nodes(many), "quick");
  expect(new Set([...positions.values()].map(({ x, y }) => `${x} ${y}`)).size).toBe(10_000);
});

test("the valid parts of an incomplete spec form the graph", () => {
  const spec = {
    steps: [
      { name: "a", approval: {} },
      null,
      { job: {} },
      { name: "b", needs: ["a", "nobody", 3, "b"], for_each: { over: { shards: 3 } }, when: "true" },
      { name: "b" },
    ],
    finally: [{ name: "c", needs: ["a"] }],
    on_failure: "soon",
  };
  const found = dagFromSpec(spec as never);
  expect(found.map(({ name, kind, needs }) => [name, kind, needs])).toEqual([
    ["a", "approval", []],
    ["b", "job", ["a"]],
    ["c", "job", []],
  ]);
  expect(found[1]).toMatchObject({ isMap: true, isConditional: true });
  expect(dagFromSpec(null)).toEqual([]);
});

test("a step is right of the steps that add its elements, and does not depend on them", () => {
  const over = { added_by: ["split", "load", "work", "other", "nobody", 3] };
  const steps = [{ name: "split" }, { name: "load" }, { name: "work", needs: ["load"], for_each: { over } }];
  const spec = { steps, finally: [{ name: "other" }] };
  const work = dagFromSpec(spec as never)[2];
  expect([work?.needs, work?.addedBy]).toEqual([["load", "split"], ["split"]]);
  const shown = dagFromRunSteps(
    [
      ...["split", "load"].map((name) => ({ name, section: "steps", kind: "job", for_each: false })),
      { name: "work", section: "steps", kind: "job", needs: ["load"], for_each: true },
    ] as never,
    spec as never,
  );
  expect(shown[2]?.addedBy).toEqual(["split"]);
});

test("a property without effect on the layout does not change the layout key", () => {
  const [first, ...rest] = nodes(DIAMOND);
  expect(first && layoutKeyOf([{ ...first, isMap: true }, ...rest])).toBe(layoutKeyOf(nodes(DIAMOND)));
  expect(layoutKeyOf(nodes({ ...DIAMOND, d: ["b"] }))).not.toBe(layoutKeyOf(nodes(DIAMOND)));
});

test("related steps are upstream and downstream steps, not siblings", () => {
  expect([...relatedSteps(nodes({ ...DIAMOND, e: ["c"] }), "b")].sort()).toEqual(["a", "b", "d"]);
});

test("a curve starts and ends horizontally", () => {
  expect(curvePath([0, 0, 10, 0])).toBe("M0 0H10");
  expect(curvePath([0, 0, 10, 20])).toBe("M0 0C5 0 5 20 10 20");
});
