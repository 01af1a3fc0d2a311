/** Preferences of this browser: language, theme, time zone, namespace, columns. */

import { useSyncExternalStore } from "react";

import type { ColumnChoice } from "./columns";
import type { Zone } from "./time";

export const LANGUAGES = ["en", "zh-CN"] as const;
export type Language = (typeof LANGUAGES)[number];
export type Theme = "auto" | "light" | "dark";

export interface Preferences {
  language: Language;
  theme: Theme;
  zone: Zone;
  /** The namespace that lists show; null for all. */
  namespace: string | null;
  /** Chosen columns, by table. */
  columns: Readonly<Record<string, ColumnChoice>>;
}

const KEY = "belfry.preferences";

let current = read();
const listeners = new Set<() => void>();

function read(): Preferences {
  const defaults: Preferences = {
    language: supportedLanguage(navigator.languages),
    theme: "auto",
    zone: "local",
    namespace: null,
    columns: {},
  };
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Preferences>) };
  } catch {
    return defaults;
  }
}

/** Returns the first supported language among the user's languages. */
export function supportedLanguage(tags: readonly string[]): Language {
  for (const tag of tags) {
    if (tag.toLowerCase().startsWith("zh")) return "zh-CN";
    if (tag.toLowerCase().startsWith("en")) return "en";
  }
  return "en";
}

export function preferences(): Preferences {
  return current;
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  localStorage.setItem(KEY, JSON.stringify(current));
  for (const listener of listeners) listener();
}

export function setColumnChoice(table: string, choice: ColumnChoice): void {
  setPreferences({ columns: { ...current.columns, [table]: choice } });
}

export function onPreferencesChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(onPreferencesChange, preferences);
}
