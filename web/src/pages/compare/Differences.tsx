/** Fields with different values, and texts of several lines with their line differences. */

import { Check } from "lucide-react";
import { useTranslation } from "react-i18next";

import { differences } from "../../lib/compare";
import { collapse, diffLines } from "../../lib/lineDiff";
import { Card } from "../../ui/kit";
import { DiffText } from "./DiffText";
import style from "./compare.module.css";

interface Props {
  title: string;
  /** Text if nothing differs; without it, the card is omitted then. */
  same?: string;
  values: readonly [a: unknown, b: unknown];
  /** Names of the sides [default: `A` and `B`]. */
  heads?: readonly [a: string, b: string];
}

/** Time for one text: specs are short. */
const TEXT_TIMEOUT_MS = 100;
const NOTHING_EXPANDED: ReadonlySet<number> = new Set();

export function Differences({ title, same, values: [a, b], heads = ["A", "B"] }: Props) {
  const { t } = useTranslation();
  const found = differences(a, b);
  if (found.length === 0 && same === undefined) return null;
  if (found.length === 0) {
    return (
      <Card title={title}>
        <p className={style.same}>
          <Check size={14} aria-hidden /> {same}
        </p>
      </Card>
    );
  }
  return (
    <Card title={title} aside={t("compare.count", { count: found.length })} flush>
      <div className={style.scroller}>
        <table className={style.sides} aria-label={title}>
          <thead>
            <tr>
              <th scope="col">{t("compare.field")}</th>
              <th scope="col">{heads[0]}</th>
              <th scope="col">{heads[1]}</th>
            </tr>
          </thead>
          <tbody>
            {found.map(({ path, a, b }) => (
              <tr key={path}>
                <th scope="row">
                  <code>{path === "" ? title : path}</code>
                </th>
                {a !== null && b !== null && (a.includes("\n") || b.includes("\n")) ? (
                  <td colSpan={2}>
                    <TextDifference a={a} b={b} />
                  </td>
                ) : (
                  [a, b].map((value, i) => (
                    <td key={i}>
                      {value === null ? (
                        <span className="quiet">–</span>
                      ) : (
                        <code className={style.value}>{value}</code>
                      )}
                    </td>
                  ))
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function TextDifference({ a, b }: { a: string; b: string }) {
  const { t } = useTranslation();
  const rows = diffLines(a.split("\n"), b.split("\n"), { timeoutMs: TEXT_TIMEOUT_MS });
  if (!rows) return <span className="quiet">{t("compare.tooDifferent")}</span>;
  return (
    <div className={style.text}>
      {collapse(rows, NOTHING_EXPANDED).map((row, i) => (
        <DiffText key={i} row={row} firstA={1} firstB={1} />
      ))}
    </div>
  );
}
