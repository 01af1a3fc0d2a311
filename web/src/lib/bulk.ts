/** Bulk actions: many ids, some of them with each request. */

import { ApiError } from "../api/errors";

/** Maximum number of ids in a bulk action. */
export const BULK_MAX = 100_000;
/** Number of ids of one request. */
export const BATCH = 500;
/** Number of ids of a request that retries waiting ids: most of them are refused again. */
export const RETRIED = 20;
/** Maximum delay while a server limit refuses requests and names no delay; the first one is a second. */
const BUSY_DELAY_MAX_MS = 5_000;
const CONCURRENCY = 6;

/** Acts on some ids and returns the errors by id. A thrown error concerns all of them. */
export type BatchAction = (ids: readonly string[]) => Promise<ReadonlyMap<string, ApiError>>;

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
  isRetryable: (error: ApiError) => boolean;
  /** Waits until a retry may succeed. */
  waitForRetry: (signal: AbortSignal) => Promise<void>;
}

/**
 * Acts on all ids, in their order, until all have ended or the user stops it; a failure does not stop the others. A
 * request that a server limit refuses (429) is repeated.
 *
 * Retryable failures are retried each time `waitForRetry` resolves, in the order of `ids` among the retried ones.
 */
export async function runBulk(
  ids: readonly string[],
  act: BatchAction,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
  retryPolicy?: RetryPolicy,
): Promise<BulkResult> {
  let done = 0;
  const errors = new Map<string, ApiError>();
  const waiting = new Map<string, ApiError>();
  const attempt = async (batch: readonly string[]) => {
    const refused = await actWithinLimits(batch, act, signal);
    for (const id of batch) {
      const error = refused.get(id);
      if (!error) done += 1;
      const isRetryable = error && retryPolicy?.isRetryable(error);
      if (error && isRetryable) waiting.set(id, error);
      else waiting.delete(id);
      if (error && !isRetryable) errors.set(id, error);
    }
    onProgress({ done, failed: errors.size, waiting: waiting.size });
  };

  let attempted = 0;
  while (attempted < ids.length && !signal.aborted) {
    const batch = ids.slice(attempted, attempted + BATCH);
    attempted += batch.length;
    await attempt(batch);
  }
  for (let round = 0; retryPolicy && waiting.size > 0 && !signal.aborted; round += 1) {
    await retryPolicy.waitForRetry(signal);
    if (signal.aborted) break;
    const ordered = ids.filter((id) => waiting.has(id));
    await attempt(idsToRetry(ordered, (id) => waiting.get(id)?.message, round));
  }
  return { done, errors: new Map([...errors, ...waiting]), notAttempted: ids.slice(attempted) };
}

/** Acts on a batch; while a server limit refuses the request, waits and repeats it. */
async function actWithinLimits(batch: readonly string[], act: BatchAction, signal: AbortSignal) {
  for (let refusals = 0; ; refusals += 1) {
    try {
      return await act(batch);
    } catch (thrown) {
      const error = ApiError.from(thrown);
      if (error.status === 429) {
        await wait(error.retryAfterMs ?? Math.min(1_000 * 2 ** refusals, BUSY_DELAY_MAX_MS), signal);
        if (!signal.aborted) continue;
      }
      return new Map(batch.map((id) => [id, error]));
    }
  }
}

/** Waits, or returns early if the signal is aborted. */
function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (signal.aborted) done();
    else signal.addEventListener("abort", done);
  });
}

/**
 * Returns at most {@link RETRIED} waiting ids. A message may name the object that an id waits for, such as a schedule:
 * the first id of each message is retried. But ids that wait for other objects may have the same message, so further
 * ids are taken at even distances, other ones in each round: each id is retried at last.
 */
function idsToRetry(
  waiting: readonly string[],
  messageOf: (id: string) => string | undefined,
  round: number,
): readonly string[] {
  if (waiting.length <= RETRIED) return waiting;
  const chosen = new Set<string>();
  const messages = new Set<string | undefined>();
  for (const id of waiting) {
    const message = messageOf(id);
    if (!messages.has(message) && messages.size < RETRIED / 2) chosen.add(id);
    messages.add(message);
  }
  const distance = Math.ceil(waiting.length / (RETRIED - chosen.size));
  const isInTurn = (i: number) => i % distance === round % distance;
  return waiting.filter((id, i) => chosen.has(id) || isInTurn(i));
}

/** Returns an action that sends a request for each id, a few at a time. */
export function forEachId(act: (id: string) => Promise<unknown>): BatchAction {
  return async (ids) => {
    const errors = new Map<string, ApiError>();
    let next = 0;
    const run = async () => {
      for (let id = ids[next++]; id !== undefined; id = ids[next++]) {
        const current = id;
        await act(current).catch((thrown: unknown) => errors.set(current, ApiError.from(thrown)));
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, run));
    return errors;
  };
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
