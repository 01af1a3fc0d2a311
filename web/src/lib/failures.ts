/** Job names with failed or expired jobs, and the newest jobs of those that a list shows. */

import type { Job, StatisticsTotal } from "../api/schema";

export interface Failure {
  namespace: string;
  /** Null for all jobs of the namespace whose names have no statistics of their own. */
  name: string | null;
  failed: number;
  expired: number;
  /** The newest ended job; null if it was not read or is deleted. */
  newest: Job | null;
}

/** Returns whether the newest ended job succeeded. */
export function isRecovered({ newest }: Failure): boolean {
  return newest?.status === "succeeded";
}

export interface Failures {
  /** Failures by name: first those that have not recovered, then by count. */
  items: readonly Failure[];
  /** Number of failed and expired jobs with other names. */
  more: number;
}

export interface NamedTotal {
  namespace: string;
  name: string;
  counts: StatisticsTotal;
}

/** Rows that a list shows at first. The newest jobs are read for these only. */
export const SHOWN_FAILURES = 8;
/** Maximum number of newest jobs that are read, if steps and recovered names are among them. */
const NEWEST_MAX = 16;

/**
 * Returns the names with failures, and the newest jobs of the first ones. Step jobs are left out if they are among the
 * first: their failures are listed with their run.
 */
export async function findFailures(
  totals: readonly StatisticsTotal[],
  find: (total: NamedTotal) => Promise<Job | null>,
): Promise<Failure[]> {
  const failed = totals.filter((total) => total.failed + total.expired > 0);
  const newest = new Map<StatisticsTotal, Job | null>();
  for (;;) {
    const ranked = rank(failed, newest);
    const missing = ranked
      .slice(0, SHOWN_FAILURES)
      .filter(({ failure, total }) => failure.name !== null && !newest.has(total));
    if (missing.length === 0 || newest.size >= NEWEST_MAX) return ranked.map(({ failure }) => failure);
    await Promise.all(
      missing.slice(0, NEWEST_MAX - newest.size).map(async ({ failure: { namespace, name }, total }) => {
        const found = find({ namespace, name: name ?? "", counts: total });
        // The count is worth showing without the job.
        newest.set(total, await found.catch(() => null));
      }),
    );
  }
}

function rank(totals: readonly StatisticsTotal[], newest: ReadonlyMap<StatisticsTotal, Job | null>) {
  const count = ({ failed, expired }: Failure) => failed + expired;
  return totals
    .map((total) => {
      const { subject, failed, expired } = total;
      const name = subject.other_jobs ? null : (subject.job ?? null);
      const job = newest.get(total) ?? null;
      const failure: Failure = { namespace: subject.namespace ?? "", name, failed, expired, newest: job };
      return { failure, total };
    })
    .filter(({ failure }) => !failure.newest?.step)
    .sort(
      ({ failure: a }, { failure: b }) =>
        Number(isRecovered(a)) - Number(isRecovered(b)) || count(b) - count(a),
    );
}
