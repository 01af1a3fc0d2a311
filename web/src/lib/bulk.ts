/** Bulk actions: one request per id, a few at a time. */

import { ApiError } from "../api/errors";

/** Maximum number of ids in a bulk action. */
export const BULK_MAX = 10_000;
const CONCURRENCY = 6;

export interface Progress {
  done: number;
  failed: number;
  /** Ids whose action failed temporarily and will be retried. */
  waiting: number;
}

/** Result of a bulk action. */
export interface BulkResult {
  done: number;
  /** Errors by id. */
  errors: ReadonlyMap<string, ApiError>;
  /** Ids that were not attempted, because the user stopped the action. */
  notAttempted: readonly string[];
}

/** How temporary failures are retried. */
export interface RetryPolicy {
  /** Ids of one group run one after another; after a retryable failure, the rest of the group waits too. */
  groupOf: (id: string) => string | undefined;
  isRetryable: (error: ApiError) => boolean;
  /** Waits until a retry may succeed. */
  waitForRetry: (signal: AbortSignal) => Promise<void>;
}

/**
 * Runs an action for each id until all have ended or the user stops it; a failure does not stop the others.
 *
 * Retryable failures are retried in the order of `ids`, each time `waitForRetry` resolves. The ids of one group run
 * in that order from the start.
 */
export async function runBulk(
  ids: readonly string[],
  act: (id: string) => Promise<unknown>,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
  retryPolicy?: RetryPolicy,
): Promise<BulkResult> {
  let done = 0;
  const errors = new Map<string, ApiError>();
  const waiting = new Map<string, ApiError>();
  const attempt = async (id: string) => {
    try {
      await act(id);
      waiting.delete(id);
      done += 1;
    } catch (thrown) {
      const error = ApiError.from(thrown);
      const isRetryable = retryPolicy?.isRetryable(error) ?? false;
      (isRetryable ? waiting : errors).set(id, error);
      if (!isRetryable) waiting.delete(id);
    }
    onProgress({ done, failed: errors.size, waiting: waiting.size });
  };

  const groups = groupsOf(ids, (id) => retryPolicy?.groupOf(id) ?? id);
  const notAttempted = new Set(ids);
  const runGroup = async (group: readonly string[]) => {
    let error: ApiError | undefined;
    for (const id of group) {
      if (signal.aborted) return;
      notAttempted.delete(id);
      if (error) waiting.set(id, error);
      else {
        await attempt(id);
        error = waiting.get(id);
      }
    }
    onProgress({ done, failed: errors.size, waiting: waiting.size });
  };
  let next = 0;
  const runGroups = async () => {
    while (next < groups.length && !signal.aborted) await runGroup(groups[next++] ?? []);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, runGroups));

  while (retryPolicy && waiting.size > 0 && !signal.aborted) {
    await retryPolicy.waitForRetry(signal);
    // A retry with the same error message would fail again in this round.
    const seenMessages = new Set<string>();
    for (const id of ids) {
      const before = waiting.get(id);
      if (signal.aborted || !before || seenMessages.has(before.message)) continue;
      await attempt(id);
      const after = waiting.get(id);
      if (after) seenMessages.add(after.message);
    }
  }
  return { done, errors: new Map([...errors, ...waiting]), notAttempted: [...notAttempted] };
}

/** Groups ids, keeping their order. */
function groupsOf(ids: readonly string[], groupOf: (id: string) => string): string[][] {
  const groups = new Map<string, string[]>();
  for (const id of ids) {
    const group = groups.get(groupOf(id));
    if (group) group.push(id);
    else groups.set(groupOf(id), [id]);
  }
  return [...groups.values()];
}

/** Errors with the same code. */
export interface ErrorGroup {
  /** One of them, for its text. */
  example: ApiError;
  count: number;
}

/** Groups errors by code, the most frequent first. */
export function groupErrors(errors: Iterable<ApiError>): ErrorGroup[] {
  const groups = new Map<string, ErrorGroup>();
  for (const error of errors) {
    const group = groups.get(error.code);
    if (group) group.count += 1;
    else groups.set(error.code, { example: error, count: 1 });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

interface Paged<T> {
  items: readonly T[];
  next_cursor?: string | null;
}

/** Returns the matching items of a paginated list, at most {@link BULK_MAX}. */
export async function findAll<T>(
  fetchPage: (cursor: string | undefined) => Promise<Paged<T>>,
  matches: (item: T) => boolean,
): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await fetchPage(cursor);
    items.push(...page.items.filter(matches));
    cursor = page.next_cursor ?? undefined;
  } while (cursor && items.length < BULK_MAX);
  return items.slice(0, BULK_MAX);
}
