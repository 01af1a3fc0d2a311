/**
 * Ids of the browser's sessions: `TIME.RANDOM`, ordered by the start of the session.
 *
 * Tabs may receive new sessions in any order; the order of the ids decides, and a tab with the older id adopts the
 * newer one.
 */

/** Returns an id that is newer than `id`, even if the clock was set back. */
export function sessionAfter(id: string, now: number, random: string): string {
  return `${Math.max(now, timeOf(id) + 1)}.${random}`;
}

/** Returns whether session `a` started after session `b`. Of two different ids, one is always newer. */
export function isNewerSession(a: string, b: string): boolean {
  const [at, bt] = [timeOf(a), timeOf(b)];
  return at === bt ? a > b : at > bt;
}

/** Returns the time of an id; 0 for ids of earlier versions, which contain no time. */
function timeOf(id: string): number {
  return Number(/^(\d+)\./.exec(id)?.[1] ?? 0);
}
