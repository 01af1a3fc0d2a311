import { expect, test } from "vitest";

import { layOut } from "../../lib/dag/layout";
import {
  initialView,
  centerView,
  isEdgeVisible,
  fitView,
  isNodeVisible,
  neighbour,
  stepAt,
  viewportOf,
  zoomView,
} from "./view";

const BOX = { width: 800, height: 600 };
const node = (name: string, needs: string[] = []) => ({
  ...{ name, needs, addedBy: [], section: "steps" as const, kind: "job" as const },
  ...{ isMap: false, isConditional: false },
});
const LAYOUT = layOut([node("a"), node("b", ["a"]), node("c", ["a"]), node("d", ["b", "c"])], "careful");

test("a graph fits into the view, and a small one is not enlarged", () => {
  expect(fitView({ width: 200, height: 100 }, BOX).scale).toBe(1);
  const wide = fitView({ width: 7_520, height: 100 }, BOX);
  expect(wide.scale).toBeCloseTo(0.1);
  expect(wide.x).toBeCloseTo(24);
});

test("on a phone a graph starts at its left end at a readable scale", () => {
  const phone = { width: 360, height: 400 };
  const { scale, x } = initialView({ width: 1_000, height: 200 }, phone);
  expect([scale, x]).toEqual([0.7, 24]);
  // A thousand steps are still shown as a whole.
  expect(initialView({ width: 9_000, height: 4_000 }, phone).scale).toBeLessThan(0.1);
  expect(initialView({ width: 1_000, height: 200 }, BOX)).toEqual(
    fitView({ width: 1_000, height: 200 }, BOX),
  );
});

test("zooming keeps the point under the pointer", () => {
  const view = { x: 10, y: 20, scale: 0.5 };
  const at = { x: 300, y: 200 };
  const next = zoomView(view, 1.7, at);
  expect((at.x - next.x) / next.scale).toBeCloseTo((at.x - view.x) / view.scale);
  expect((at.y - next.y) / next.scale).toBeCloseTo((at.y - view.y) / view.scale);
  expect(zoomView(view, 1_000, at).scale).toBe(2);
});

test("a step is found at its position, and only visible steps and edges are in the viewport", () => {
  const point = LAYOUT.positions.get("d") ?? { x: 0, y: 0 };
  const view = centerView({ x: 0, y: 0, scale: 1 }, point, BOX);
  expect(stepAt(LAYOUT, view, { x: 400, y: 300 })).toBe("d");
  expect(stepAt(LAYOUT, view, { x: 1, y: 1 })).toBeUndefined();
  const window = viewportOf(view, BOX);
  expect(isNodeVisible(point, window)).toBe(true);
  expect(isNodeVisible({ x: point.x + 5_000, y: point.y }, window)).toBe(false);
  const edge = { from: "a", to: "b", points: [point.x - 5_000, point.y, point.x + 5_000, point.y] };
  expect(isEdgeVisible(edge, window)).toBe(true);
  expect(isEdgeVisible({ ...edge, points: [-9_000, 0, -8_000, 0] }, window)).toBe(false);
});

test("arrow keys select the nearest step in that direction", () => {
  expect(neighbour(LAYOUT, "a", "ArrowLeft")).toBeUndefined();
  expect(neighbour(LAYOUT, "d", "ArrowRight")).toBeUndefined();
  const [upper, lower] = ["b", "c"].sort(
    (one, other) => (LAYOUT.positions.get(one)?.y ?? 0) - (LAYOUT.positions.get(other)?.y ?? 0),
  );
  expect(neighbour(LAYOUT, upper ?? "", "ArrowDown")).toBe(lower);
  expect(neighbour(LAYOUT, lower ?? "", "ArrowUp")).toBe(upper);
  expect(["b", "c"]).toContain(neighbour(LAYOUT, "a", "ArrowRight"));
  expect(neighbour(LAYOUT, "a", "x")).toBeUndefined();
});
