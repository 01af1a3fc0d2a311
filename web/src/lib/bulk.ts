/** Acting on many things: one request each, a few at a time. */

/** More than so many are not acted on at once. */
export const BULK_MAX = 10_000;
const AT_ONCE = 6;

export interface Progress {
  done: number;
  failed: number;
}

/** Acts on each of these until it is over or stopped; what is refused does not keep the others back. */
export async function actOnAll(
  ids: readonly string[],
  act: (id: string) => Promise<unknown>,
  onProgress: (progress: Progress) => void,
  signal: AbortSignal,
): Promise<Progress> {
  const progress = { done: 0, failed: 0 };
  let next = 0;
  const take = async () => {
    for (let id = ids[next++]; id !== undefined && !signal.aborted; id = ids[next++]) {
      try {
        await act(id);
        progress.done += 1;
      } catch {
        progress.failed += 1;
      }
      onProgress({ ...progress });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, take));
  return progress;
}

interface Paged<T> {
  items: readonly T[];
  next_cursor?: string | null;
}

/** The ids of what fits in a list that is read page by page; {@link BULK_MAX} of them at most. */
export async function findAll<T extends { id: string }>(
  read: (cursor: string | undefined) => Promise<Paged<T>>,
  isFit: (item: T) => boolean,
): Promise<string[]> {
  const ids: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await read(cursor);
    ids.push(...page.items.filter(isFit).map((item) => item.id));
    cursor = page.next_cursor ?? undefined;
  } while (cursor && ids.length < BULK_MAX);
  return ids.slice(0, BULK_MAX);
}
