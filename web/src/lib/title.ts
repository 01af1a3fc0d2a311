/** The tab's title: the page, and the number of jobs that failed while the tab was hidden. */

import { useEffect } from "react";

import { feed } from "../api/feed";

let page = "";
let failures = 0;

function updateTitle(): void {
  const mark = failures > 0 ? `(${failures}) ✕ ` : "";
  document.title = `${mark}${page === "" ? "" : `${page} · `}Belfry`;
}

/** Sets the page part of the title while mounted. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    page = title;
    updateTitle();
    return () => {
      page = "";
      updateTitle();
    };
  }, [title]);
}

/** Counts failures while the tab is hidden. */
export function useFailureCount(): void {
  useEffect(() => {
    const onVisibility = () => {
      if (document.hidden) return;
      failures = 0;
      updateTitle();
    };
    document.addEventListener("visibilitychange", onVisibility);
    const stop = feed.onBatch((batch) => {
      if (!document.hidden) return;
      failures += batch.filter((event) => event.to === "failed").length;
      updateTitle();
    });
    return () => {
      stop();
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }, []);
}
