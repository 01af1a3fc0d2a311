/** Lists of schedules: how they are sorted, and which of them need somebody. */

import type { Schedule } from "../api/schema";

export const SORTS = ["next", "name", "health", "newest"] as const;
export type Sort = (typeof SORTS)[number];

/** In the wished order; those that never come (no next firing, no runs) are last. */
export function sortSchedules(schedules: readonly Schedule[], by: Sort): Schedule[] {
  const byName = (a: Schedule, b: Schedule) => a.name.localeCompare(b.name);
  const next = ({ next_at: at }: Schedule) => (at ? Date.parse(at) : Infinity);
  // Stuck before late before failing; then by how much succeeds.
  const health = ({ track, health: now }: Schedule) => {
    const troubled = (now?.stuck_now.length ?? 0) * 1e9 + (now?.late_now.length ?? 0) * 1e6;
    const failing = track.streak < 0 ? 1 - track.streak : 0;
    return troubled + failing > 0 ? -(troubled + failing) : (track.success_rate ?? 2);
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

/** What can be done with many of them at once. */
export type BulkAction = "pause" | "resume" | "trigger";

/** Whether it can be done with one in this status. */
export function isApplicable(action: BulkAction, { status }: Pick<Schedule, "status">): boolean {
  if (action === "pause") return status === "active";
  if (action === "resume") return status === "paused";
  return true;
}

/** Rows in chunks that stay the same while one scrolls: those that a range has a part in. */
export function chunksInRange<T>(rows: readonly T[], first: number, last: number, size: number): T[][] {
  const found: T[][] = [];
  for (
    let from = Math.floor(Math.max(0, first) / size) * size;
    from <= last && from < rows.length;
    from += size
  ) {
    found.push(rows.slice(from, from + size));
  }
  return found;
}

/** As `a - b`, where both may be infinite. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
