/** Saved views: named filters, stored in this browser. */

import { useSyncExternalStore } from "react";

export interface SavedView<Search> {
  name: string;
  search: Search;
}

/** The saved views of one list. */
export class ViewStore<Search> {
  readonly #key: string;
  readonly #listeners = new Set<() => void>();
  #views: ReadonlyArray<SavedView<Search>>;

  constructor(key: string) {
    this.#key = key;
    this.#views = read<Search>(key);
  }

  get = (): ReadonlyArray<SavedView<Search>> => this.#views;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Saves a view; replaces a view of the same name. */
  save(view: SavedView<Search>): void {
    this.#write([...this.#views.filter((each) => each.name !== view.name), view]);
  }

  remove(name: string): void {
    this.#write(this.#views.filter((each) => each.name !== name));
  }

  #write(next: ReadonlyArray<SavedView<Search>>): void {
    this.#views = next;
    localStorage.setItem(this.#key, JSON.stringify(next));
    for (const listener of this.#listeners) listener();
  }
}

function read<Search>(key: string): ReadonlyArray<SavedView<Search>> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(stored) ? (stored as Array<SavedView<Search>>) : [];
  } catch {
    return [];
  }
}

export function useViews<Search>(views: ViewStore<Search>): ReadonlyArray<SavedView<Search>> {
  return useSyncExternalStore(views.subscribe, views.get);
}
