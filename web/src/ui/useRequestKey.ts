import { useRef } from "react";

import { randomId } from "../lib/randomId";

/**
 * Returns a function that returns the idempotency key of a request: the same one for the same content, so that a
 * repeated request does nothing twice.
 */
export function useRequestKey(): (content: string) => string {
  const last = useRef<{ content: string; key: string } | null>(null);
  return (content) => {
    if (last.current?.content !== content) last.current = { content, key: randomId() };
    return last.current.key;
  };
}
