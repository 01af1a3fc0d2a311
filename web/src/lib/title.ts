/**
 * The tab's title: the page, the number of critical alerts or of jobs that failed while the tab was hidden, and a flashing
 * message.
 */

import { useEffect } from "react";

import { feed } from "../api/feed";

let page = "";
let failures = 0;
let criticalAlerts = 0;

/** Flashing interval: browsers run timers of hidden tabs at most once a second. */
const FLASH_MS = 1_000;
let flash: { text: string; isOn: boolean; timer: ReturnType<typeof setInterval> } | null = null;

/** Flashes a text in the title until the user looks at the tab. */
export function flashTitle(text: string): void {
  stopFlash();
  if (!document.hidden) return;
  const timer = setInterval(() => {
    if (flash) flash.isOn = !flash.isOn;
    updateTitle();
  }, FLASH_MS);
  flash = { text, isOn: true, timer };
  document.addEventListener("visibilitychange", stopFlash, { once: true });
  updateTitle();
}

function stopFlash(): void {
  if (flash) clearInterval(flash.timer);
  flash = null;
  updateTitle();
}

function updateTitle(): void {
  if (flash?.isOn) {
    document.title = flash.text;
    return;
  }
  const failed = failures > 0 ? `(${failures}) ✕ ` : "";
  const mark = criticalAlerts > 0 ? `(${criticalAlerts}) ⚠ ` : failed;
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

/** Shows the number of critical alerts that are firing. */
export function useAlertMark(count: number): void {
  useEffect(() => {
    criticalAlerts = count;
    updateTitle();
    return () => {
      criticalAlerts = 0;
      updateTitle();
    };
  }, [count]);
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
