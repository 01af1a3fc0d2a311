/** Toolbar of a list whose selected items can only be compared. */

import { BulkBar } from "./BulkBar";
import { CompareButton } from "./CompareButton";
import type { Selection } from "./useSelection";

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
