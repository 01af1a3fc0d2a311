/** The layout of a graph: for a large graph a quick one first, then the careful one. */

import { useEffect, useRef, useState } from "react";

import { type DagNode, layoutKeyOf } from "./graph";
import { type Layout, EMPTY_LAYOUT } from "./layout";

interface LayoutMessage {
  id: number;
  layout: Layout;
  isLast: boolean;
}

export interface LayoutState {
  layout: Layout;
  /** Layout key of the graph in `layout`; empty before the first layout. */
  layoutKey: string;
  isBusy: boolean;
}

export function useLayout(nodes: readonly DagNode[]): LayoutState {
  const layoutKey = layoutKeyOf(nodes);
  const [state, setState] = useState<LayoutState>({ layout: EMPTY_LAYOUT, layoutKey: "", isBusy: true });
  const worker = useRef<{ its: Worker; isBusy: boolean } | null>(null);
  const lastId = useRef(0);
  const latestNodes = useRef(nodes);
  latestNodes.current = nodes;

  useEffect(() => {
    // A worker that is busy with an outdated graph is terminated.
    if (worker.current?.isBusy) {
      worker.current.its.terminate();
      worker.current = null;
    }
    worker.current ??= {
      its: new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" }),
      isBusy: false,
    };
    const current = worker.current;
    lastId.current += 1;
    const id = lastId.current;
    current.isBusy = true;
    setState((before) => ({ ...before, isBusy: true }));
    current.its.onmessage = ({ data }: MessageEvent<LayoutMessage>) => {
      if (data.id !== id) return;
      current.isBusy = !data.isLast;
      setState({ layout: data.layout, layoutKey, isBusy: !data.isLast });
    };
    current.its.postMessage({ id, nodes: latestNodes.current });
  }, [layoutKey]);

  useEffect(
    () => () => {
      worker.current?.its.terminate();
      worker.current = null;
    },
    [],
  );
  return state;
}
