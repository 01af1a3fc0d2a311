/** The width of scrollbars, which a head above a list leaves free so that its columns stand over those of the list. */

import { type RefObject, useLayoutEffect, useState } from "react";

/** The width of the scrollbar that an element shows now, in pixels. */
export function useScrollbar(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    // A scrollbar takes its width from the content, which is what is observed.
    const observer = new ResizeObserver(() => setWidth(box.offsetWidth - box.clientWidth));
    observer.observe(box);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
