/**
 * Selected rows of a list.
 *
 * The selection belongs to one list: it is empty in a list with another filter, whatever changed the filter. Its key
 * makes a bulk action idempotent: an action that is repeated on what it left has the same key.
 */

import { randomId } from "./randomId";

export interface Selected {
  /** Filter of the list. */
  list: string;
  ids: ReadonlySet<string>;
  key: string;
}

const NOTHING: ReadonlySet<string> = new Set();

/** Returns the selection after the user has changed it. */
export function select(list: string, ids: ReadonlySet<string> = NOTHING): Selected {
  return { list, ids, key: randomId() };
}

/** Returns the selection after a bulk action that left some ids. */
export function keepLeft(before: Selected, left: ReadonlySet<string>): Selected {
  return left.size === 0 ? select(before.list) : { ...before, ids: left };
}

/** Returns the selection in the current list. */
export function inList(before: Selected, list: string): Selected {
  return before.list === list ? before : select(list);
}
