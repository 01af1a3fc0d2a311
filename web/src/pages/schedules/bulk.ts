/** Bulk actions on schedules. Events refresh the views afterwards. */

import { unwrap, api } from "../../api/client";
import type { SchedulesFilter } from "../../api/schedules";
import { findAll } from "../../lib/bulk";
import { type BulkAction, isApplicable } from "../../lib/schedules";
import { randomId } from "../../lib/randomId";

/** Returns the ids of the schedules of a filter to which an action applies. */
export async function findApplicable(
  action: BulkAction,
  filter: SchedulesFilter,
  signal: AbortSignal,
): Promise<string[]> {
  const read = (cursor: string | undefined) => {
    const params = { query: { ...filter, limit: 1_000, cursor } };
    return unwrap(api.GET("/api/v1/schedules", { params, signal }));
  };
  return (await findAll(read, (schedule) => isApplicable(action, schedule))).map(({ id }) => id);
}

/** `reason` is the note of a pause, and the reason of a manual firing. */
export async function runAction(action: BulkAction, id: string, reason: string): Promise<void> {
  const path = { name: id };
  if (action === "pause") {
    const body = reason === "" ? {} : { note: reason };
    await unwrap(api.POST("/api/v1/schedules/{name}/pause", { params: { path }, body }));
  } else if (action === "resume") {
    await unwrap(api.POST("/api/v1/schedules/{name}/resume", { params: { path } }));
  } else {
    const header = { "Idempotency-Key": randomId() };
    const body = reason === "" ? {} : { reason };
    await unwrap(api.POST("/api/v1/schedules/{name}/trigger", { params: { path, header }, body }));
  }
}
