/** Preferences of this browser: language, theme, time zone, namespace, columns. */

import { useLayoutEffect, useSyncExternalStore } from "react";

import type { ColumnChoice } from "./columns";
import { chosenZone, type Zone, type ZoneChoice } from "./time";

export const LANGUAGES = ["en", "zh-CN"] as const;
export type Language = (typeof LANGUAGES)[number];
export type Theme = "auto" | "light" | "dark";

export interface Preferences {
  language: Language;
  theme: Theme;
  zone: ZoneChoice;
  /** The namespace that lists show; null for all. */
  namespace: string | null;
  /** Chosen columns, by table. */
  columns: Readonly<Record<string, ColumnChoice>>;
}

/** Preferences with the zone in which the current page shows its times. */
export interface ShownPreferences extends Omit<Preferences, "zone"> {
  zone: Zone;
  zoneChoice: ZoneChoice;
}

const KEY = "belfry.preferences";

let current = read();
/** Zone of the schedule of the current page. */
let scheduleZone: Zone | null = null;
let shown = toShown();
const listeners = new Set<() => void>();

function toShown(): ShownPreferences {
  const { zone: zoneChoice, ...rest } = current;
  return { ...rest, zone: chosenZone(zoneChoice, scheduleZone), zoneChoice };
}

function update(): void {
  shown = toShown();
  for (const listener of listeners) listener();
}

function read(): Preferences {
  const defaults: Preferences = {
    language: supportedLanguage(navigator.languages),
    theme: "auto",
    zone: "schedule",
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
  update();
}

export function setColumnChoice(table: string, choice: ColumnChoice): void {
  setPreferences({ columns: { ...current.columns, [table]: choice } });
}

export function onPreferencesChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function usePreferences(): ShownPreferences {
  return useSyncExternalStore(onPreferencesChange, () => shown);
}

/** Makes this page the page of a schedule in `zone`, which the choice `schedule` refers to. */
export function useScheduleZone(zone: Zone | undefined): void {
  // Before the browser paints: the page never shows another zone.
  useLayoutEffect(() => {
    scheduleZone = zone ?? null;
    update();
    return () => {
      scheduleZone = null;
      update();
    };
  }, [zone]);
}
