/** Lays out workflow graphs in a worker, so that a large graph does not block the page. */

import type { DagNode } from "./graph";
import { CAREFUL_NODES_MAX, layOut } from "./layout";

/** Minimum number of steps for a quick layout first; the careful mode is fast enough for fewer. */
const QUICK_MIN = 200;

onmessage = ({ data }: MessageEvent<{ id: number; nodes: DagNode[] }>) => {
  const { id, nodes } = data;
  const isSmall = nodes.length < QUICK_MIN;
  const isHuge = nodes.length > CAREFUL_NODES_MAX;
  if (!isSmall) postMessage({ id, layout: layOut(nodes, "quick"), isLast: isHuge });
  if (!isHuge) postMessage({ id, layout: layOut(nodes, "careful"), isLast: true });
};
