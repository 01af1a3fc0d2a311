/** Recovery from failed loads of pages and parts. */

import { useEffect, useRef } from "react";

import { feed } from "../api/feed";
import { resetFailedLoads, ChunkLoadError } from "./lazyPage";
import { mayReload } from "./reloadGuard";

/**
 * Reloads the whole page if the server responds: then the chunk is missing because the server was upgraded. The URL
 * of this module identifies the build.
 */
async function reloadAfterUpgrade({ message }: ChunkLoadError, mayDiscard: () => boolean): Promise<void> {
  const answer = await fetch("/livez", { cache: "no-store" }).catch(() => null);
  if (answer?.ok && mayDiscard() && mayReload(sessionStorage, import.meta.url, message)) location.reload();
}

/**
 * Loads the chunk again once the server is back, and reloads the page once after a server upgrade. `reset` renders
 * the failed component again. A reload discards user input, so it requires `mayDiscard`.
 */
export function useChunkReload(error: unknown, reset: () => void, mayDiscard = true): void {
  const mayDiscardRef = useRef(mayDiscard);
  mayDiscardRef.current = mayDiscard;

  useEffect(() => {
    if (!(error instanceof ChunkLoadError)) return;
    void reloadAfterUpgrade(error, () => mayDiscardRef.current);
    const stop = feed.onStatus(() => {
      if (feed.status.state !== "live") return;
      // Must precede `reset`: the component would fail again with the cached failure.
      resetFailedLoads();
      reset();
    });
    return () => {
      stop();
      resetFailedLoads();
    };
  }, [error, reset]);
}
