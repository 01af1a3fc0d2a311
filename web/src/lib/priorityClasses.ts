/** Priority classes of jobs. */

import type { PriorityClass } from "../api/schema";

/** The classes, highest first. */
export const PRIORITY_CLASSES = ["high", "normal", "preemptible"] as const satisfies readonly PriorityClass[];

/** Class of a job that sets none. */
export const DEFAULT_CLASS: PriorityClass = "normal";

/** Returns whether a class is shown beside the priority: the default is not. */
export function isShownClass(
  priorityClass: PriorityClass | null | undefined,
): priorityClass is PriorityClass {
  return priorityClass != null && priorityClass !== DEFAULT_CLASS;
}

/**
 * Returns the class of a job in a form. Like the server, replaces the default by the class of the workflow. Both values
 * come from a file, which may have any.
 */
export function effectiveClass(written: unknown, ofWorkflow?: unknown): PriorityClass {
  const known = [written, ofWorkflow].map((value) => PRIORITY_CLASSES.find((each) => each === value));
  return known.find(isShownClass) ?? DEFAULT_CLASS;
}
