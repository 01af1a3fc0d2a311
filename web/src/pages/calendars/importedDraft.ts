/** A calendar that was read from a file, on its way to the editor. */

import type { CalendarSpec } from "../../api/schema";

let draft: CalendarSpec | null = null;

export function setImportedDraft(spec: CalendarSpec): void {
  draft = spec;
}

/** The kept one, as long as no other is. */
export function importedDraft(): CalendarSpec | null {
  return draft;
}
