/** Requests for the audit log. */

import { infiniteQueryOptions, keepPreviousData } from "@tanstack/react-query";

import { type AuditSearch, auditQueryOf } from "../lib/audit";
import { api, unwrap } from "./client";

/** Entries of a page. */
const PAGE = 100;

/** The entries that match a search, newest first, page by page. */
export const auditQuery = (search: AuditSearch) =>
  infiniteQueryOptions({
    queryKey: ["audit", search],
    queryFn: ({ pageParam }) => {
      const query = { ...auditQueryOf(search, new Date()), limit: PAGE, cursor: pageParam };
      return unwrap(api.GET("/api/v1/audit", { params: { query } }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });
