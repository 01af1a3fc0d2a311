/** Scrollbar width, so that a header above a list can align its columns with those of the list. */

import { type RefObject, useLayoutEffect, useState } from "react";

/** Returns the width of an element's scrollbar in pixels. */
export function useScrollbar(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    // A scrollbar reduces the content width, which is observed.
    const observer = new ResizeObserver(() => setWidth(box.offsetWidth - box.clientWidth));
    observer.observe(box);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
