/** A table of two sides with their differences, and bars of their times. */

import type { CSSProperties, ReactNode } from "react";
import { useTranslation } from "react-i18next";

import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import style from "./compare.module.css";

type Pair<T> = readonly [a: T, b: T];

export type SideRow =
  | { label: string; shown: Pair<ReactNode> }
  | { label: string; numbers: Pair<number | null | undefined>; format: (value: number) => string };

interface Props {
  heads: Pair<ReactNode>;
  /** Controls below the heads. */
  choices?: Pair<ReactNode>;
  rows: readonly SideRow[];
}

export function SideTable({ heads, choices, rows }: Props) {
  const { t } = useTranslation();
  return (
    <div className={style.scroller}>
      <table className={style.sides} data-testid="sides">
        <thead>
          <tr>
            <td />
            {heads.map((head, i) => (
              <th key={i} scope="col">
                <b className={style.letter}>{"AB"[i]}</b> {head}
                {choices?.[i]}
              </th>
            ))}
            <th scope="col">{t("compare.difference")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.label}>
              <th scope="row">{row.label}</th>
              {"shown" in row
                ? row.shown.map((value, i) => <td key={i}>{isNothing(value) ? <Nothing /> : value}</td>)
                : row.numbers.map((value, i) => (
                    <td key={i} className="num">
                      {value === null || value === undefined ? <Nothing /> : row.format(value)}
                    </td>
                  ))}
              <td className="num">{"numbers" in row && <Delta {...row} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function isNothing(value: ReactNode): boolean {
  return value === null || value === undefined || value === "";
}

function Nothing() {
  return <span className="quiet">–</span>;
}

interface DeltaProps {
  numbers: Pair<number | null | undefined>;
  format: (value: number) => string;
}

/** How much more or less the second side has. */
export function Delta({ numbers: [a, b], format }: DeltaProps) {
  const { language } = usePreferences();
  if (a === null || a === undefined || b === null || b === undefined) return null;
  if (a === b) return <span className="quiet">=</span>;
  const percent = new Intl.NumberFormat(language, {
    style: "percent",
    maximumFractionDigits: 0,
    signDisplay: "always",
  });
  return (
    <>
      {b > a ? "+" : "−"}
      {format(Math.abs(b - a))}
      {a > 0 && <small className="quiet"> {percent.format((b - a) / a)}</small>}
    </>
  );
}

export interface Times {
  waited: number;
  ran: number;
  /** Status that colours the bar. */
  tone: string;
}

/** Waiting and running time of both sides as bars on one scale. */
export function TimeBars({ sides }: { sides: Pair<Times> }) {
  const { t } = useTranslation();
  const longest = Math.max(1, ...sides.map(({ waited, ran }) => waited + ran));
  return (
    <div className={style.bars}>
      {sides.map(({ waited, ran, tone }, i) => (
        <div
          key={i}
          role="img"
          aria-label={t("compare.bar", {
            side: "AB"[i],
            waited: formatDuration(waited),
            ran: formatDuration(ran),
          })}
        >
          <b className={style.letter}>{"AB"[i]}</b>
          <span className={style.track}>
            <i data-wait style={{ width: `${(waited / longest) * 100}%` }} />
            <i data-tone={tone} style={{ width: `${(ran / longest) * 100}%` }} />
          </span>
        </div>
      ))}
      <p className={style.key}>
        <i data-wait /> {t("job.details.waited")} <i data-tone="succeeded" /> {t("job.details.took")}
      </p>
    </div>
  );
}

/** A bar of one duration on a scale that other rows share. */
export function ScaledBar({ value, longest, tone }: { value: number; longest: number; tone: string }) {
  const width: CSSProperties = { width: `${(value / Math.max(1, longest)) * 100}%` };
  return (
    <span className={style.track} aria-hidden>
      <i data-tone={tone} style={width} />
    </span>
  );
}
