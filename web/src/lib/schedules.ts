/** Lists of schedules: how they are sorted, and which of them need somebody. */

import type { Schedule } from "../api/schema";

export const SORTS = ["next", "name", "health"] as const;
export type Sort = (typeof SORTS)[number];

/** In the wished order; those that never come (no next firing, no runs) are last. */
export function sorted(schedules: readonly Schedule[], by: Sort): Schedule[] {
  const byName = (a: Schedule, b: Schedule) => a.name.localeCompare(b.name);
  const next = ({ next_at: at }: Schedule) => (at ? Date.parse(at) : Infinity);
  const health = ({ track }: Schedule) => (track.streak < 0 ? track.streak - 1 : (track.success_rate ?? 2));
  const order: Record<Sort, (a: Schedule, b: Schedule) => number> = {
    name: byName,
    next: (a, b) => compare(next(a), next(b)) || byName(a, b),
    health: (a, b) => compare(health(a), health(b)) || byName(a, b),
  };
  return [...schedules].sort(order[by]);
}

/** As `a - b`, where both may be infinite. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
