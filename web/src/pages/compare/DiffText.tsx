/** A line of a line difference: numbers in both texts, a sign, and the text. */

import { useTranslation } from "react-i18next";

import type { ShownRow } from "../../lib/lineDiff";
import style from "./compare.module.css";

const SIGNS = { same: " ", removed: "−", added: "+" } as const;

interface Props {
  row: ShownRow;
  /** Numbers of the first lines. */
  firstA: number;
  firstB: number;
  onExpand?: () => void;
}

export function DiffText({ row, firstA, firstB, onExpand }: Props) {
  const { t } = useTranslation();
  if (row.kind === "gap") {
    const text = t("compare.equalLines", { count: row.count });
    return onExpand ? (
      <button type="button" className={style.gap} onClick={onExpand}>
        {text}
      </button>
    ) : (
      <div className={style.gap}>{text}</div>
    );
  }
  return (
    <div className={style.line} data-kind={row.kind}>
      <span className="num">{row.a === null ? "" : firstA + row.a}</span>
      <span className="num">{row.b === null ? "" : firstB + row.b}</span>
      <b>{SIGNS[row.kind]}</b>
      <span>{row.text}</span>
    </div>
  );
}
