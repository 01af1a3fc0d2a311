/** Selected rows of a list, as state of its page. */

import { useState } from "react";

import { inList, keepLeft, select } from "../lib/selection";

export interface Selection {
  ids: ReadonlySet<string>;
  /** Idempotency key of a bulk action on the selection. */
  key: string;
  select: (ids: ReadonlySet<string>) => void;
  toggle: (id: string) => void;
  clear: () => void;
  /** Keeps the ids that a bulk action left. */
  keep: (left: ReadonlySet<string>) => void;
}

/** `filter` is that of the list: another list has another selection. */
export function useSelection(filter: object = {}): Selection {
  const list = JSON.stringify(filter);
  const [stored, setSelected] = useState(() => select(list));
  const selected = inList(stored, list);
  if (selected !== stored) setSelected(selected);
  return {
    ids: selected.ids,
    key: selected.key,
    select: (ids) => setSelected(select(list, ids)),
    toggle: (id) =>
      setSelected((before) => {
        const next = new Set(before.ids);
        if (!next.delete(id)) next.add(id);
        return select(list, next);
      }),
    clear: () => setSelected(select(list)),
    keep: (left) => setSelected((before) => keepLeft(before, left)),
  };
}
