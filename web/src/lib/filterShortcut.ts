/** The key `/` focuses the filter of a page. */

import { type RefObject, useEffect } from "react";

import { isTyping } from "../app/Shortcuts";

export function useFilterShortcut(input: RefObject<HTMLInputElement | null>): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "/" || isTyping(event.target)) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [input]);
}
