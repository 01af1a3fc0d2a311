/** A calendar that was read from a file, on its way to the editor. */

import type { CalendarSpec } from "../../api/schema";

let kept: CalendarSpec | null = null;

export function keepDraft(spec: CalendarSpec): void {
  kept = spec;
}

/** The kept one, as long as no other is. */
export function keptDraft(): CalendarSpec | null {
  return kept;
}
