/** Preferences of this browser: language, theme, time zone, namespace. */

import { useSyncExternalStore } from "react";

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

export function onPreferencesChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(onPreferencesChange, preferences);
}
