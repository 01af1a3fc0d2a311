/** The visible part of a graph and its scale: `screen = world * scale + offset`. */

import { type Edge, type Layout, NODE_HEIGHT, NODE_WIDTH, type Point } from "../../lib/dag/layout";

export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Size {
  width: number;
  height: number;
}

export const SCALE_MIN = 0.02;
export const SCALE_MAX = 2;
const MARGIN = 24;
/** Margin around the viewport within which steps are already drawn. */
const OVERSCAN_PX = 120;

/** Fits the whole graph, at most at scale 1, centered. */
export function fitView(layout: Size, box: Size): View {
  const width = Math.max(1, box.width - MARGIN * 2);
  const height = Math.max(1, box.height - MARGIN * 2);
  const fitting = Math.min(1, width / Math.max(1, layout.width), height / Math.max(1, layout.height));
  const scale = Math.max(SCALE_MIN, fitting);
  return {
    scale,
    x: (box.width - layout.width * scale) / 2,
    y: (box.height - layout.height * scale) / 2,
  };
}

/** Minimum width at which the whole graph is shown; a narrower view starts at the left end at a readable scale. */
const NARROW = 600;
const READABLE_SCALE = 0.7;
/** Minimum fitting scale for that; a larger graph is shown as a whole. */
const FIT_SCALE_MIN = 0.12;

/** Returns the initial view. */
export function initialView(layout: Size, box: Size): View {
  const all = fitView(layout, box);
  if (box.width >= NARROW || all.scale >= READABLE_SCALE || all.scale < FIT_SCALE_MIN) return all;
  const scale = Math.max(all.scale, Math.min(READABLE_SCALE, (box.height - MARGIN * 2) / layout.height));
  return { scale, x: MARGIN, y: (box.height - layout.height * scale) / 2 };
}

/** Zooms around a point of the screen. */
export function zoomView(view: View, factor: number, at: Point): View {
  const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, view.scale * factor));
  const by = scale / view.scale;
  return { scale, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by };
}

/** Centers a step at a readable scale. */
export function centerView(view: View, point: Point, box: Size): View {
  const scale = Math.max(view.scale, 0.8);
  return {
    scale,
    x: box.width / 2 - (point.x + NODE_WIDTH / 2) * scale,
    y: box.height / 2 - (point.y + NODE_HEIGHT / 2) * scale,
  };
}

export interface Viewport {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** Returns the visible part of the graph, in graph coordinates. */
export function viewportOf(view: View, box: Size, overscan = OVERSCAN_PX): Viewport {
  return {
    left: (-view.x - overscan) / view.scale,
    top: (-view.y - overscan) / view.scale,
    right: (box.width - view.x + overscan) / view.scale,
    bottom: (box.height - view.y + overscan) / view.scale,
  };
}

export function isNodeVisible({ x, y }: Point, { left, top, right, bottom }: Viewport): boolean {
  return x + NODE_WIDTH >= left && x <= right && y + NODE_HEIGHT >= top && y <= bottom;
}

export function isEdgeVisible({ points }: Edge, window: Viewport): boolean {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i + 1 < points.length; i += 2) {
    const [x, y] = [points[i] ?? 0, points[i + 1] ?? 0];
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return right >= window.left && left <= window.right && bottom >= window.top && top <= window.bottom;
}

/** Returns the step at a point of the screen. */
export function stepAt(layout: Layout, view: View, at: Point): string | undefined {
  const [x, y] = [(at.x - view.x) / view.scale, (at.y - view.y) / view.scale];
  for (const [name, point] of layout.positions) {
    if (x >= point.x && x <= point.x + NODE_WIDTH && y >= point.y && y <= point.y + NODE_HEIGHT) return name;
  }
  return undefined;
}

/** Returns the nearest step in the direction of an arrow key. */
export function neighbour(layout: Layout, from: string, key: string): string | undefined {
  const here = layout.positions.get(from);
  if (!here) return undefined;
  const along = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (!along) return undefined;
  const [dx = 0, dy = 0] = along;
  let best: string | undefined;
  let minDistance = Infinity;
  for (const [name, point] of layout.positions) {
    const [x, y] = [point.x - here.x, point.y - here.y];
    const ahead = x * dx + y * dy;
    if (ahead <= 1) continue;
    // Sideways distance counts more.
    const distance = ahead + 3 * Math.abs(x * dy + y * dx);
    if (distance < minDistance) [best, minDistance] = [name, distance];
  }
  return best;
}
