/** What to do where the code of a page, or of a part of one, could not be loaded. */

import { useEffect, useRef } from "react";

import { feed } from "../api/feed";
import { resetFailedLoads, ChunkLoadError } from "./lazyPage";
import { mayReload } from "./reloadGuard";

/**
 * Reloads the whole page if the server answers: then the code is not there because the server was upgraded. The
 * address of this module names the build.
 */
async function reloadAfterUpgrade({ message }: ChunkLoadError, mayDiscard: () => boolean): Promise<void> {
  const answer = await fetch("/livez", { cache: "no-store" }).catch(() => null);
  if (answer?.ok && mayDiscard() && mayReload(sessionStorage, import.meta.url, message)) location.reload();
}

/**
 * Loads the code again once the server is back, and reloads the dashboard once where the server was upgraded; `reset`
 * shows again what has failed. A reload loses what the user has typed: it needs `mayLose`.
 */
export function useChunkReload(error: unknown, reset: () => void, mayDiscard = true): void {
  const mayDiscardRef = useRef(mayDiscard);
  mayDiscardRef.current = mayDiscard;

  useEffect(() => {
    if (!(error instanceof ChunkLoadError)) return;
    void reloadAfterUpgrade(error, () => mayDiscardRef.current);
    const stop = feed.onStatus(() => {
      if (feed.status.state !== "live") return;
      // Before it is shown again: it would fail at once with what failed before.
      resetFailedLoads();
      reset();
    });
    return () => {
      stop();
      resetFailedLoads();
    };
  }, [error, reset]);
}
