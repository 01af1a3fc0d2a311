/** Sorting and bulk actions of schedule lists. */

import type { Schedule } from "../api/schema";

export const SORTS = ["next", "name", "health", "newest"] as const;
export type Sort = (typeof SORTS)[number];

/** Sorts schedules; those without a next firing or without runs come last. */
export function sortSchedules(schedules: readonly Schedule[], by: Sort): Schedule[] {
  const byName = (a: Schedule, b: Schedule) => a.name.localeCompare(b.name);
  const next = ({ next_at: at }: Schedule) => (at ? Date.parse(at) : Infinity);
  // Stuck before late before failing; then by success rate.
  const health = ({ statistics, health: now }: Schedule) => {
    const troubled = (now?.stuck_runs.length ?? 0) * 1e9 + (now?.late_runs.length ?? 0) * 1e6;
    const failing = statistics.streak < 0 ? 1 - statistics.streak : 0;
    return troubled + failing > 0 ? -(troubled + failing) : (statistics.success_rate ?? 2);
  };
  const order: Record<Sort, (a: Schedule, b: Schedule) => number> = {
    name: byName,
    // Ids grow with time.
    newest: (a, b) => (a.id < b.id ? 1 : -1),
    next: (a, b) => compare(next(a), next(b)) || byName(a, b),
    health: (a, b) => compare(health(a), health(b)) || byName(a, b),
  };
  return [...schedules].sort(order[by]);
}

/** Bulk actions on schedules. */
export type BulkAction = "pause" | "resume" | "trigger";

/** Returns whether an action applies to a schedule in this status. */
export function isApplicable(action: BulkAction, { status }: Pick<Schedule, "status">): boolean {
  if (action === "pause") return status === "active";
  if (action === "resume") return status === "paused";
  return true;
}

/** Returns the chunks that overlap with a range of rows; chunk boundaries are stable while scrolling. */
export function chunksInRange<T>(rows: readonly T[], first: number, last: number, size: number): T[][] {
  const chunks: T[][] = [];
  for (
    let from = Math.floor(Math.max(0, first) / size) * size;
    from <= last && from < rows.length;
    from += size
  ) {
    chunks.push(rows.slice(from, from + size));
  }
  return chunks;
}

/** Compares two numbers like `a - b`, also if both are infinite. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
