/** Checkbox that selects a row. Cheaper than the library's checkbox, because a long list has one in every row. */

import style from "./bulk.module.css";

interface Props {
  label: string;
  checked: boolean;
  /** `withRange`: select all rows since the last selected one (Shift key). */
  onPick: (withRange: boolean) => void;
}

export function RowCheckbox({ label, checked, onPick }: Props) {
  return (
    <input
      type="checkbox"
      className={style.check}
      aria-label={label}
      checked={checked}
      onClick={(event) => onPick(event.shiftKey)}
      readOnly
    />
  );
}
