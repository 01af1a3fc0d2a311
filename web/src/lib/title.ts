/** The tab's title: what page it is, and how many jobs failed since one last looked at it. */

import { useEffect } from "react";

import { feed } from "../api/feed";

let page = "";
let failures = 0;

function write(): void {
  const mark = failures > 0 ? `(${failures}) ✕ ` : "";
  document.title = `${mark}${page === "" ? "" : `${page} · `}Belfry`;
}

/** Names the page while it shows. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    page = title;
    write();
    return () => {
      page = "";
      write();
    };
  }, [title]);
}

/** Counts failures while the tab is hidden. */
export function useTitle(): void {
  useEffect(() => {
    const seen = () => {
      if (document.hidden) return;
      failures = 0;
      write();
    };
    document.addEventListener("visibilitychange", seen);
    const stop = feed.onBatch((batch) => {
      if (!document.hidden) return;
      failures += batch.filter((event) => event.to === "failed").length;
      write();
    });
    return () => {
      stop();
      document.removeEventListener("visibilitychange", seen);
    };
  }, []);
}
