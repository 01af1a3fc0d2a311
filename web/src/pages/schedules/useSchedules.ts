/**
 * A list of schedules for a filter, however many there are.
 *
 * Up to a thousand are read at once and can be in any order. Of more, the server's orders are what there
 * is, and pages are read as the user scrolls down. Rows are light; what is dear to find out (health and
 * recent runs) is asked for the rows in sight alone, some at a time, and kept fresh for those alone.
 */

import { useInfiniteQuery, useQueries, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useRef } from "react";

import {
  pagedSchedulesQuery,
  type SchedulesFilter,
  schedulesQuery,
  visibleSchedulesQuery,
} from "../../api/schedules";
import type { Schedule } from "../../api/schema";
import { chunksInRange, sortSchedules, type Sort } from "../../lib/schedules";

/** So many rows are asked for in one request. */
const CHUNK_ROWS = 25;

export interface Schedules {
  /** `undefined` before the first answer. */
  rows: readonly Schedule[] | undefined;
  error: Error | null;
  /** There are too many for an order of our own. */
  isPaged: boolean;
  hasMore: boolean;
  more: () => void;
  refetch: () => void;
}

export function useSchedules(filter: SchedulesFilter, sort: Sort): Schedules {
  const whole = useQuery({
    ...schedulesQuery(filter, undefined, sort === "health"),
    // Of more than one page only what is in sight is kept fresh.
    enabled: (query) => !query.state.data?.next_cursor,
  });
  const isPaged = Boolean(whole.data?.next_cursor) && !whole.isPlaceholderData;
  const paged = useInfiniteQuery({
    ...pagedSchedulesQuery(filter, sort === "next" ? "next" : "newest"),
    enabled: isPaged,
  });
  const rows = useMemo(() => {
    if (isPaged) return paged.data?.pages.flatMap((page) => page.items);
    return whole.data && sortSchedules(whole.data.items, sort);
  }, [isPaged, paged.data, whole.data, sort]);
  const { fetchNextPage, hasNextPage, isFetchingNextPage } = paged;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  return {
    rows,
    error: isPaged ? paged.error : whole.error,
    isPaged,
    hasMore: isPaged && hasNextPage,
    more,
    refetch: () => void (isPaged ? paged.refetch() : whole.refetch()),
  };
}

/** The rows in sight with all that is told of them; a row is as the list has it until that is there. */
export function useVisibleDetails(rows: readonly Schedule[], first: number, last: number) {
  const chunkIds = chunksInRange(rows, first, last, CHUNK_ROWS).map((chunk) =>
    chunk.map((schedule) => schedule.id),
  );
  const found = useQueries({ queries: chunkIds.map((ids) => visibleSchedulesQuery(ids)) });
  // What was told of a row stays while it is asked anew.
  const details = useRef(new Map<string, Schedule>());
  for (const { data } of found)
    for (const schedule of data?.items ?? []) details.current.set(schedule.id, schedule);
  return useCallback((schedule: Schedule): Schedule => {
    const known = details.current.get(schedule.id);
    return !known ? schedule : known.version < schedule.version ? { ...known, ...schedule } : known;
  }, []);
}
