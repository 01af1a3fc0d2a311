/**
 * Ids of the browser's sessions: `TIME.RANDOM`, in the order in which the sessions began.
 *
 * The order ends disputes: tabs may hear of a new session in any order, and whoever has the older id takes the newer.
 */

/** An id that is newer than `id`, also if the clock was set back. */
export function sessionAfter(id: string, now: number, random: string): string {
  return `${Math.max(now, timeOf(id) + 1)}.${random}`;
}

/** Whether session `a` began after session `b`. Of two different ids one is always the newer. */
export function isNewerSession(a: string, b: string): boolean {
  const [at, bt] = [timeOf(a), timeOf(b)];
  return at === bt ? a > b : at > bt;
}

/** 0 for ids of earlier versions, which have no time. */
function timeOf(id: string): number {
  return Number(/^(\d+)\./.exec(id)?.[1] ?? 0);
}
