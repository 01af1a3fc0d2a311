/** Lays out pictures of workflows beside the page, so that a large one does not hold it up. */

import type { DagNode } from "./graph";
import { CAREFUL_NODES_MAX, layOut } from "./layout";

/** Smaller ones are there at once in any case. */
const QUICK_MIN = 200;

onmessage = ({ data }: MessageEvent<{ id: number; nodes: DagNode[] }>) => {
  const { id, nodes } = data;
  const isSmall = nodes.length < QUICK_MIN;
  const isHuge = nodes.length > CAREFUL_NODES_MAX;
  if (!isSmall) postMessage({ id, layout: layOut(nodes, "quick"), isLast: isHuge });
  if (!isHuge) postMessage({ id, layout: layOut(nodes, "careful"), isLast: true });
};
