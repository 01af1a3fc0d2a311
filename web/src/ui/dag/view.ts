/** Which part of a picture shows, and how large: `screen = world * scale + offset`. */

import { type Edge, type Layout, NODE_HEIGHT, NODE_WIDTH, type Place } from "../../lib/dag/layout";

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
/** What is this far out of sight is drawn already. */
const AHEAD = 120;

/** All of it, not larger than life; narrow ones stand in the middle. */
export function fitted(layout: Size, box: Size): View {
  const width = Math.max(1, box.width - MARGIN * 2);
  const height = Math.max(1, box.height - MARGIN * 2);
  const wished = Math.min(1, width / Math.max(1, layout.width), height / Math.max(1, layout.height));
  const scale = Math.max(SCALE_MIN, wished);
  return {
    scale,
    x: (box.width - layout.width * scale) / 2,
    y: (box.height - layout.height * scale) / 2,
  };
}

/** Narrower than this, a picture begins at its left end rather than too small to be read. */
const NARROW = 600;
const READABLE_SCALE = 0.7;
/** Of higher ones nothing would be seen that way. */
const SHOWN_MIN = 0.12;

/** What shows at first. */
export function begun(layout: Size, box: Size): View {
  const all = fitted(layout, box);
  if (box.width >= NARROW || all.scale >= READABLE_SCALE || all.scale < SHOWN_MIN) return all;
  const scale = Math.max(all.scale, Math.min(READABLE_SCALE, (box.height - MARGIN * 2) / layout.height));
  return { scale, x: MARGIN, y: (box.height - layout.height * scale) / 2 };
}

/** Larger or smaller, around a point of the screen. */
export function zoomed(view: View, factor: number, at: Place): View {
  const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, view.scale * factor));
  const by = scale / view.scale;
  return { scale, x: at.x - (at.x - view.x) * by, y: at.y - (at.y - view.y) * by };
}

/** With a step in the middle, large enough to be read. */
export function centered(view: View, place: Place, box: Size): View {
  const scale = Math.max(view.scale, 0.8);
  return {
    scale,
    x: box.width / 2 - (place.x + NODE_WIDTH / 2) * scale,
    y: box.height / 2 - (place.y + NODE_HEIGHT / 2) * scale,
  };
}

export interface Window {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The part of the world that shows. */
export function windowOf(view: View, box: Size, ahead = AHEAD): Window {
  return {
    left: (-view.x - ahead) / view.scale,
    top: (-view.y - ahead) / view.scale,
    right: (box.width - view.x + ahead) / view.scale,
    bottom: (box.height - view.y + ahead) / view.scale,
  };
}

export function isInside({ x, y }: Place, { left, top, right, bottom }: Window): boolean {
  return x + NODE_WIDTH >= left && x <= right && y + NODE_HEIGHT >= top && y <= bottom;
}

export function crosses({ points }: Edge, window: Window): boolean {
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

/** The step at a point of the screen. */
export function stepAt(layout: Layout, view: View, at: Place): string | undefined {
  const [x, y] = [(at.x - view.x) / view.scale, (at.y - view.y) / view.scale];
  for (const [name, place] of layout.places) {
    if (x >= place.x && x <= place.x + NODE_WIDTH && y >= place.y && y <= place.y + NODE_HEIGHT) return name;
  }
  return undefined;
}

/** The step that one comes to from another by an arrow key. */
export function neighbour(layout: Layout, from: string, key: string): string | undefined {
  const here = layout.places.get(from);
  if (!here) return undefined;
  const along = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (!along) return undefined;
  const [dx = 0, dy = 0] = along;
  let best: string | undefined;
  let least = Infinity;
  for (const [name, place] of layout.places) {
    const [x, y] = [place.x - here.x, place.y - here.y];
    const ahead = x * dx + y * dy;
    if (ahead <= 1) continue;
    // What lies aside counts more than what lies far.
    const distance = ahead + 3 * Math.abs(x * dy + y * dx);
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}
