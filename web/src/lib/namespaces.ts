/** The namespace that lists show: chosen in the frame, remembered in this browser, and part of the address of lists. */

/** Lists whose address has a namespace. */
export const SCOPED_LISTS: ReadonlySet<string> = new Set([
  "/jobs",
  "/failures",
  "/schedules",
  "/workflows",
  "/runs",
  "/services",
  "/artifacts",
  "/secrets",
  "/alerts",
  "/alerts/rules",
  "/alerts/channels",
  "/alerts/monitors",
  "/alerts/silences",
  "/alerts/notifications",
]);

/** Value of the API, and of the switcher, for all namespaces. */
export const ALL_NAMESPACES = "*";

export function isAllNamespaces(namespace: string | null | undefined): boolean {
  return !namespace || namespace === ALL_NAMESPACES;
}

/** Returns the search of a link to a page: a list shows the remembered namespace. */
export function scopedSearch(to: string, namespace: string | null): { namespace?: string } {
  return namespace !== null && SCOPED_LISTS.has(to) ? { namespace } : {};
}

/** Returns the names to choose from, sorted: those with jobs, those of limited rights, and the current ones. */
export function namespaceChoices(
  known: readonly string[],
  ...current: ReadonlyArray<string | null | undefined>
): string[] {
  const names = new Set(known);
  for (const name of current) if (name && !isAllNamespaces(name)) names.add(name);
  return [...names].sort((a, b) => a.localeCompare(b));
}

export function hasSeveralNamespaces(rows: ReadonlyArray<{ namespace: string }>): boolean {
  return rows.some(({ namespace }) => namespace !== rows[0]?.namespace);
}
