/** The box that selects a row. Lighter than the library's: a long list has one in every row. */

import style from "./bulk.module.css";

interface Props {
  label: string;
  checked: boolean;
  /** `withRange` if all rows since the last one are meant. */
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
