/** The current time for the whole page: one timer, regardless of the number of users. */

import { useSyncExternalStore } from "react";

let now = Date.now();
let timer: ReturnType<typeof setInterval> | null = null;
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    if (document.hidden) return;
    now = Date.now();
    for (const each of listeners) each();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0 && timer !== null) {
      clearInterval(timer);
      timer = null;
    }
  };
}

/** Returns a value of the current time, updated when the value changes. */
export function useNowAs<T extends string | number>(valueOf: (now: number) => T): T {
  return useSyncExternalStore(subscribe, () => valueOf(now));
}

/** Returns the time in ms since the epoch, updated once a second while the page is visible. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}
