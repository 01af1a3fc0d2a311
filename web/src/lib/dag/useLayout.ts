/** The layout of a picture: a quick one first where it is large, then the careful one. */

import { useEffect, useRef, useState } from "react";

import { type DagNode, shapeOf } from "./graph";
import { type Layout, NOTHING } from "./layout";

interface Answer {
  id: number;
  layout: Layout;
  isLast: boolean;
}

export interface LaidOut {
  layout: Layout;
  /** The shape that the layout is of; empty before the first. */
  shape: string;
  isBusy: boolean;
}

export function useLayout(nodes: readonly DagNode[]): LaidOut {
  const shape = shapeOf(nodes);
  const [state, setState] = useState<LaidOut>({ layout: NOTHING, shape: "", isBusy: true });
  const worker = useRef<{ its: Worker; isBusy: boolean } | null>(null);
  const asked = useRef(0);
  const wanted = useRef(nodes);
  wanted.current = nodes;

  useEffect(() => {
    // A worker that still lays out what nobody wants any more is not waited for.
    if (worker.current?.isBusy) {
      worker.current.its.terminate();
      worker.current = null;
    }
    worker.current ??= {
      its: new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" }),
      isBusy: false,
    };
    const mine = worker.current;
    asked.current += 1;
    const id = asked.current;
    mine.isBusy = true;
    setState((before) => ({ ...before, isBusy: true }));
    mine.its.onmessage = ({ data }: MessageEvent<Answer>) => {
      if (data.id !== id) return;
      mine.isBusy = !data.isLast;
      setState({ layout: data.layout, shape, isBusy: !data.isLast });
    };
    mine.its.postMessage({ id, nodes: wanted.current });
  }, [shape]);

  useEffect(
    () => () => {
      worker.current?.its.terminate();
      worker.current = null;
    },
    [],
  );
  return state;
}
