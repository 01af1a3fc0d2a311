/** Acting on many things: one request each, a few at a time. */

import { Refusal } from "../api/problem";

/** More than so many are not acted on at once. */
export const BULK_MAX = 10_000;
const AT_ONCE = 6;

export interface Progress {
  done: number;
  failed: number;
  /** Those that were refused for now, and are tried again. */
  waiting: number;
}

/** What came of acting on many things. */
export interface Acted {
  done: number;
  /** Each that was refused, and why. */
  refused: ReadonlyMap<string, Refusal>;
  /** Those that were not tried, because the user stopped before. */
  left: readonly string[];
}

/** Refusals that pass by themselves. */
export interface Turns {
  /** Ids of one lane are tried one after another: if one is refused for now, the rest of its lane waits too. */
  laneOf: (id: string) => string | undefined;
  isForNow: (refusal: Refusal) => boolean;
  /** Waits until what was refused for now may be accepted. */
  next: (signal: AbortSignal) => Promise<void>;
}

/**
 * Acts on each of these until it is over or stopped; what is refused does not keep the others back.
 *
 * What is refused for now is tried again, in the order of `ids`, as soon as the next turn comes. The ids of one lane are
 * tried in that order from the start.
 */
export async function actOnAll(
  ids: readonly string[],
  act: (id: string) => Promise<unknown>,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
  turns?: Turns,
): Promise<Acted> {
  let done = 0;
  const refused = new Map<string, Refusal>();
  const waiting = new Map<string, Refusal>();
  const tryOne = async (id: string) => {
    try {
      await act(id);
      waiting.delete(id);
      done += 1;
    } catch (error) {
      const refusal = Refusal.from(error);
      const isForNow = turns?.isForNow(refusal) ?? false;
      (isForNow ? waiting : refused).set(id, refusal);
      if (!isForNow) waiting.delete(id);
    }
    onProgress({ done, failed: refused.size, waiting: waiting.size });
  };

  const lanes = lanesOf(ids, (id) => turns?.laneOf(id) ?? id);
  const left = new Set(ids);
  const takeLane = async (lane: readonly string[]) => {
    let refusal: Refusal | undefined;
    for (const id of lane) {
      if (signal.aborted) return;
      left.delete(id);
      if (refusal) waiting.set(id, refusal);
      else {
        await tryOne(id);
        refusal = waiting.get(id);
      }
    }
    onProgress({ done, failed: refused.size, waiting: waiting.size });
  };
  let next = 0;
  const take = async () => {
    while (next < lanes.length && !signal.aborted) await takeLane(lanes[next++] ?? []);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, take));

  while (turns && waiting.size > 0 && !signal.aborted) {
    await turns.next(signal);
    // The same refusal as one of this turn would come again.
    const heard = new Set<string>();
    for (const id of ids) {
      const before = waiting.get(id);
      if (signal.aborted || !before || heard.has(before.message)) continue;
      await tryOne(id);
      const after = waiting.get(id);
      if (after) heard.add(after.message);
    }
  }
  return { done, refused: new Map([...refused, ...waiting]), left: [...left] };
}

/** The ids of each lane, in their order. */
function lanesOf(ids: readonly string[], laneOf: (id: string) => string): string[][] {
  const lanes = new Map<string, string[]>();
  for (const id of ids) {
    const lane = lanes.get(laneOf(id));
    if (lane) lane.push(id);
    else lanes.set(laneOf(id), [id]);
  }
  return [...lanes.values()];
}

/** Refusals of one kind. */
export interface RefusalGroup {
  /** One of them, for its words. */
  example: Refusal;
  count: number;
}

/** Refusals by their code, the most frequent first. */
export function grouped(refusals: Iterable<Refusal>): RefusalGroup[] {
  const groups = new Map<string, RefusalGroup>();
  for (const refusal of refusals) {
    const group = groups.get(refusal.code);
    if (group) group.count += 1;
    else groups.set(refusal.code, { example: refusal, count: 1 });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count);
}

interface Paged<T> {
  items: readonly T[];
  next_cursor?: string | null;
}

/** What fits in a list that is read page by page; {@link BULK_MAX} of them at most. */
export async function findAll<T>(
  read: (cursor: string | undefined) => Promise<Paged<T>>,
  isFit: (item: T) => boolean,
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    found.push(...page.items.filter(isFit));
    cursor = page.next_cursor ?? undefined;
  } while (cursor && found.length < BULK_MAX);
  return found.slice(0, BULK_MAX);
}
