/**
 * Positions of the steps in a workflow graph.
 *
 * Each section is laid out separately, from left to right, in a band below the previous one. There are two modes:
 * `careful` has the fewest crossings and takes up to seconds for a thousand steps; `quick` takes milliseconds for ten
 * thousand. Both run in a worker (`layout.worker.ts`).
 */

import { Graph, layout as dagre } from "@dagrejs/dagre";

import type { Section } from "../../api/schema";
import { type DagNode, SECTIONS } from "./graph";

export const NODE_WIDTH = 176;
export const NODE_HEIGHT = 46;
const GAP_X = 38;
const GAP_Y = 16;
/** Height of a band's title. */
const BAND_HEADER_HEIGHT = 34;
/** Maximum number of steps for the network simplex ranker; it is too slow for more. */
const NETWORK_SIMPLEX_NODES_MAX = 120;
/** Maximum number of steps for the careful mode. */
export const CAREFUL_NODES_MAX = 2_000;

export interface Point {
  /** Top left corner. */
  x: number;
  y: number;
}

export interface Edge {
  from: string;
  to: string;
  /** Alternating x and y, from the right side of `from` to the left side of `to`. */
  points: readonly number[];
}

export interface Band {
  section: Section;
  y: number;
  height: number;
}

export interface Layout {
  width: number;
  height: number;
  positions: ReadonlyMap<string, Point>;
  edges: readonly Edge[];
  bands: readonly Band[];
}

type SectionLayout = Pick<Layout, "width" | "height" | "edges"> & { positions: Map<string, Point> };

export const EMPTY_LAYOUT: Layout = { width: 0, height: 0, positions: new Map(), edges: [], bands: [] };

export function layOut(nodes: readonly DagNode[], mode: "quick" | "careful"): Layout {
  const positions = new Map<string, Point>();
  const edges: Edge[] = [];
  const bands: Band[] = [];
  let [width, y] = [0, 0];
  const sections = SECTIONS.filter((section) => nodes.some((node) => node.section === section));
  for (const section of sections) {
    const sectionNodes = nodes.filter((node) => node.section === section);
    const part = mode === "careful" ? careful(sectionNodes) : quick(sectionNodes);
    const top = y + (sections.length > 1 ? BAND_HEADER_HEIGHT : 0);
    for (const [name, point] of part.positions) positions.set(name, { x: point.x, y: point.y + top });
    for (const edge of part.edges) {
      edges.push({ ...edge, points: edge.points.map((value, i) => (i % 2 === 1 ? value + top : value)) });
    }
    bands.push({ section, y, height: top - y + part.height });
    width = Math.max(width, part.width);
    y = top + part.height + GAP_Y * 2;
  }
  return { width, height: Math.max(0, y - GAP_Y * 2), positions, edges, bands };
}

function careful(nodes: readonly DagNode[]): SectionLayout {
  const ranker = nodes.length <= NETWORK_SIMPLEX_NODES_MAX ? "network-simplex" : "tight-tree";
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: GAP_Y, edgesep: 10, ranksep: GAP_X, ranker });
  for (const { name } of nodes) graph.setNode(name, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const { name, needs } of nodes) for (const need of needs) graph.setEdge(need, name, {});
  dagre(graph);
  const positions = new Map<string, Point>();
  for (const { name } of nodes) {
    const { x = 0, y = 0 } = graph.node(name) as { x?: number; y?: number };
    positions.set(name, { x: x - NODE_WIDTH / 2, y: y - NODE_HEIGHT / 2 });
  }
  const edges = graph.edges().map(({ v, w }) => {
    const { points } = graph.edge({ v, w }) as { points: Point[] };
    return edgeBetween(positions, v, w, points.slice(1, -1));
  });
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { width, height, positions, edges };
}

/** Returns an edge from the right side of `from` to the left side of `to`, through the points `by`. */
function edgeBetween(
  positions: ReadonlyMap<string, Point>,
  from: string,
  to: string,
  by: readonly Point[],
): Edge {
  const [a, b] = [positions.get(from), positions.get(to)];
  if (!a || !b) return { from, to, points: [] };
  const start = [a.x + NODE_WIDTH, a.y + NODE_HEIGHT / 2];
  const end = [b.x, b.y + NODE_HEIGHT / 2];
  return { from, to, points: [...start, ...by.flatMap(({ x, y }) => [x, y]), ...end] };
}

/** Number of passes that reorder the ranks by their neighbours. */
const SWEEPS = 4;

/** Ranks steps by the longest path to them, and orders each rank by the mean position of the neighbours. */
function quick(nodes: readonly DagNode[]): SectionLayout {
  const ranks = rankNodes(nodes);
  const columns: string[][] = [];
  for (const { name } of nodes) (columns[ranks.get(name) ?? 0] ??= []).push(name);
  const needs = new Map(nodes.map((node) => [node.name, node.needs]));
  const neededBy = new Map<string, string[]>();
  for (const { name, needs } of nodes) {
    for (const need of needs) {
      const of = neededBy.get(need);
      if (of) of.push(name);
      else neededBy.set(need, [name]);
    }
  }
  const order = new Map<string, number>();
  const recordOrder = (column: readonly string[]) =>
    column.forEach((name, i) => order.set(name, (i + 0.5) / column.length));
  for (const column of columns) recordOrder(column);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const neighbours: ReadonlyMap<string, readonly string[]> = sweep % 2 === 0 ? needs : neededBy;
    const middle = (name: string) => {
      const of = neighbours.get(name) ?? [];
      if (of.length === 0) return order.get(name) ?? 0;
      return of.reduce((sum, each) => sum + (order.get(each) ?? 0), 0) / of.length;
    };
    for (const column of sweep % 2 === 0 ? columns : columns.toReversed()) {
      const middles = new Map(column.map((name) => [name, middle(name)]));
      column.sort((a, b) => (middles.get(a) ?? 0) - (middles.get(b) ?? 0));
      recordOrder(column);
    }
  }
  const step = NODE_HEIGHT + GAP_Y;
  const tallest = Math.max(0, ...columns.map((column) => column.length));
  const positions = new Map<string, Point>();
  columns.forEach((column, rank) => {
    const top = ((tallest - column.length) * step) / 2;
    column.forEach((name, i) => positions.set(name, { x: rank * (NODE_WIDTH + GAP_X), y: top + i * step }));
  });
  return {
    width: Math.max(0, columns.length * (NODE_WIDTH + GAP_X) - GAP_X),
    height: Math.max(0, tallest * step - GAP_Y),
    positions,
    edges: nodes.flatMap(({ name, needs }) => needs.map((need) => edgeBetween(positions, need, name, []))),
  };
}

/**
 * Returns the length of the longest path to each step. A step on a cycle, which a draft may have, has rank 0 or the
 * rank of its acyclic upstream steps.
 */
function rankNodes(nodes: readonly DagNode[]): Map<string, number> {
  const open = new Map(nodes.map((node) => [node.name, node.needs.length]));
  const neededBy = new Map<string, string[]>();
  for (const { name, needs } of nodes) {
    for (const need of needs) neededBy.set(need, [...(neededBy.get(need) ?? []), name]);
  }
  const ranks = new Map<string, number>(nodes.map(({ name }) => [name, 0]));
  const ready = nodes.flatMap(({ name, needs }) => (needs.length === 0 ? [name] : []));
  for (let at = 0; at < ready.length; at += 1) {
    const name = ready[at] ?? "";
    for (const next of neededBy.get(name) ?? []) {
      ranks.set(next, Math.max(ranks.get(next) ?? 0, (ranks.get(name) ?? 0) + 1));
      const remaining = (open.get(next) ?? 1) - 1;
      open.set(next, remaining);
      if (remaining === 0) ready.push(next);
    }
  }
  return ranks;
}

/** Returns an SVG path that starts and ends horizontally. */
export function curvePath(points: readonly number[]): string {
  let [x = 0, y = 0] = points;
  let path = `M${round(x)} ${round(y)}`;
  for (let i = 2; i + 1 < points.length; i += 2) {
    const [nextX, nextY] = [points[i] ?? x, points[i + 1] ?? y];
    const middle = (x + nextX) / 2;
    path +=
      y === nextY
        ? `H${round(nextX)}`
        : `C${round(middle)} ${round(y)} ${round(middle)} ${round(nextY)} ${round(nextX)} ${round(nextY)}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
