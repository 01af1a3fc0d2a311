/** Passes an imported calendar to the editor. */

import type { CalendarSpec } from "../../api/schema";

let draft: CalendarSpec | null = null;

export function setImportedDraft(spec: CalendarSpec): void {
  draft = spec;
}

/** Returns the last imported calendar; null if there was none. */
export function importedDraft(): CalendarSpec | null {
  return draft;
}
