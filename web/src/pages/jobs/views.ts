/** Saved views: filters with a name, kept in this browser. */

import { useSyncExternalStore } from "react";

import type { JobsSearch } from "../../app/router";

export interface SavedView {
  name: string;
  search: JobsSearch;
}

const KEY = "belfry.views";
const listeners = new Set<() => void>();
let views = read();

function read(): readonly SavedView[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? (kept as SavedView[]) : [];
  } catch {
    return [];
  }
}

function write(next: readonly SavedView[]): void {
  views = next;
  localStorage.setItem(KEY, JSON.stringify(next));
  for (const listener of listeners) listener();
}

export function saveView(view: SavedView): void {
  write([...views.filter((each) => each.name !== view.name), view]);
}

export function forgetView(name: string): void {
  write(views.filter((each) => each.name !== name));
}

export function useViews(): readonly SavedView[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => views,
  );
}
