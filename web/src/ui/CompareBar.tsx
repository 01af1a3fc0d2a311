/** Toolbar of a list whose selected items can only be compared, and its selection. */

import { useState } from "react";

import { BulkBar } from "./BulkBar";
import { CompareButton } from "./CompareButton";

export interface Selection {
  ids: ReadonlySet<string>;
  toggle: (id: string) => void;
  clear: () => void;
}

export function useSelection(): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) =>
    setIds((before) => {
      const next = new Set(before);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  return { ids, toggle, clear: () => setIds(new Set()) };
}

export function CompareBar({ selection: { ids, clear } }: { selection: Selection }) {
  return (
    <BulkBar
      choices={[]}
      selected={ids.size}
      hasMore={false}
      extra={<CompareButton ids={ids} />}
      onClear={clear}
      onBulk={() => {}}
    />
  );
}
