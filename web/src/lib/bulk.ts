/** Acting on many things: one request each, a few at a time. */

import { ApiError } from "../api/errors";

/** More than so many are not acted on at once. */
export const BULK_MAX = 10_000;
const CONCURRENCY = 6;

export interface Progress {
  done: number;
  failed: number;
  /** Those that were refused for now, and are tried again. */
  waiting: number;
}

/** What came of acting on many things. */
export interface BulkResult {
  done: number;
  /** Each that was refused, and why. */
  errors: ReadonlyMap<string, ApiError>;
  /** Those that were not tried, because the user stopped before. */
  notAttempted: readonly string[];
}

/** Refusals that pass by themselves. */
export interface RetryPolicy {
  /** Ids of one lane are tried one after another: if one is refused for now, the rest of its lane waits too. */
  groupOf: (id: string) => string | undefined;
  isRetryable: (error: ApiError) => boolean;
  /** Waits until what was refused for now may be accepted. */
  waitForRetry: (signal: AbortSignal) => Promise<void>;
}

/**
 * Acts on each of these until it is over or stopped; what is refused does not keep the others back.
 *
 * What is refused for now is tried again, in the order of `ids`, as soon as the next turn comes. The ids of one lane are
 * tried in that order from the start.
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
    // The same apiError as one of this turn would come again.
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

/** The ids of each lane, in their order. */
function groupsOf(ids: readonly string[], groupOf: (id: string) => string): string[][] {
  const groups = new Map<string, string[]>();
  for (const id of ids) {
    const group = groups.get(groupOf(id));
    if (group) group.push(id);
    else groups.set(groupOf(id), [id]);
  }
  return [...groups.values()];
}

/** Refusals of one kind. */
export interface ErrorGroup {
  /** One of them, for its words. */
  example: ApiError;
  count: number;
}

/** Refusals by their code, the most frequent first. */
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

/** What fits in a list that is read page by page; {@link BULK_MAX} of them at most. */
export async function findAll<T>(
  fetchPage: (cursor: string | undefined) => Promise<Paged<T>>,
  matches: (item: T) => boolean,
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await fetchPage(cursor);
    found.push(...page.items.filter(matches));
    cursor = page.next_cursor ?? undefined;
  } while (cursor && found.length < BULK_MAX);
  return found.slice(0, BULK_MAX);
}
