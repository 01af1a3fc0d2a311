/** Addresses of the pages of job names. */

import type { Range } from "../../lib/statistics";

/** Returns the search of the page of a job name; the namespace `default` and the first range are omitted. */
export function namedSearch(namespace: string, range?: Range): { namespace?: string; range?: Range } {
  return { namespace: namespace === "default" ? undefined : namespace, range };
}
