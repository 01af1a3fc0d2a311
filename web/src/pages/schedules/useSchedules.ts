/**
 * A filtered list of any number of schedules.
 *
 * Up to 1,000 schedules are read at once and sorted in the page. Longer lists use the server's orders and are
 * paginated as the user scrolls down. Health and recent runs are expensive, so they are loaded and refreshed in
 * chunks, only for visible rows.
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

/** Rows per request for details. */
const CHUNK_ROWS = 25;

export interface Schedules {
  /** Undefined before the first response. */
  rows: readonly Schedule[] | undefined;
  error: Error | null;
  /** Whether there are too many rows to sort in the page. */
  isPaged: boolean;
  hasMore: boolean;
  more: () => void;
  refetch: () => void;
}

export function useSchedules(filter: SchedulesFilter, sort: Sort): Schedules {
  const whole = useQuery({
    ...schedulesQuery(filter, undefined, sort === "health"),
    // Of a longer list, only visible rows are refreshed.
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

/** Returns details of the visible rows; a row as listed until its details are loaded. */
export function useVisibleDetails(rows: readonly Schedule[], first: number, last: number) {
  const chunkIds = chunksInRange(rows, first, last, CHUNK_ROWS).map((chunk) =>
    chunk.map((schedule) => schedule.id),
  );
  const queries = useQueries({ queries: chunkIds.map((ids) => visibleSchedulesQuery(ids)) });
  // Details of a row are kept while they are reloaded.
  const details = useRef(new Map<string, Schedule>());
  for (const { data } of queries)
    for (const schedule of data?.items ?? []) details.current.set(schedule.id, schedule);
  return useCallback((schedule: Schedule): Schedule => {
    const known = details.current.get(schedule.id);
    return !known ? schedule : known.version < schedule.version ? { ...known, ...schedule } : known;
  }, []);
}
