/** Toolbar of bulk actions on the selected rows of a list, or on all rows that match its filter. */

import { ActionIcon, Button } from "@mantine/core";
import { type LucideIcon, X } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useTranslation } from "react-i18next";

import style from "./bulk.module.css";

export interface BulkChoice<Action extends string> {
  action: Action;
  icon: LucideIcon;
  /** Number of selected rows to which the action applies. */
  count: number;
  /** Labels of the button: for the selected rows, and for all matching rows. */
  labels: { some: string; all: string };
}

interface Props<Action extends string> {
  choices: ReadonlyArray<BulkChoice<Action>>;
  selected: number;
  /** All loaded rows are selected, and there are more. */
  hasMore: boolean;
  /** Further actions that need no confirmation. */
  extra?: ReactNode;
  onClear: () => void;
  onBulk: (action: Action, all: boolean) => void;
}

export function BulkBar<Action extends string>(props: Props<Action>) {
  return props.selected === 0 ? null : <Bar {...props} />;
}

function Bar<Action extends string>(props: Props<Action>) {
  const { choices, selected, hasMore, extra, onClear, onBulk } = props;
  const { t } = useTranslation();
  const [all, setAll] = useState(false);
  // After a change of the selection, the user must choose all rows again.
  if (all && !hasMore) setAll(false);
  const isAll = all && hasMore;
  return (
    <div className={style.bar} role="toolbar" aria-label={t("bulk.label")}>
      <strong className="num">
        {isAll ? t("bulk.allMatching") : t("bulk.selected", { count: selected })}
      </strong>
      {hasMore && !all && (
        <button type="button" className={style.all} onClick={() => setAll(true)}>
          {t("bulk.chooseAll")}
        </button>
      )}
      {choices.map(({ action, icon: Icon, count, labels }) => (
        <Button
          key={action}
          variant="default"
          leftSection={<Icon size={13} />}
          disabled={!isAll && count === 0}
          onClick={() => onBulk(action, isAll)}
        >
          {isAll ? labels.all : labels.some}
        </Button>
      ))}
      {extra}
      <ActionIcon onClick={onClear} aria-label={t("bulk.clear")}>
        <X size={15} />
      </ActionIcon>
    </div>
  );
}
