/** Frame of a chart of a range of time: title, legend, grid, axis, and a tip at the pointer. */

import { type ReactNode, useState } from "react";

import { usePreferences } from "../../lib/preferences";
import { axisMarks, type ChartRange, type Interval } from "../../lib/statistics";
import { formatMinute, formatMonthDay, formatSecond, formatWeekday, type Zone } from "../../lib/time";
import style from "./charts.module.css";

/** Size of the drawing, which is stretched. */
export const WIDTH = 600;
export const HEIGHT = 120;
/** Position in percent up to which a label at the axis fits. */
const LABEL_MAX = 97;
/** Position in percent from which a tip is at the left of the pointer. */
const TIP_LEFT_FROM = 50;

/** A part of the range of a chart. */
export type Span = Pick<Interval, "from" | "to">;

interface Hover<Of> {
  interval: Of;
  /** Position in percent of the width. */
  at: number;
}

function intervalText({ from, to }: Span, range: ChartRange, language: string, zone: Zone): string {
  if (range === "5m") return formatSecond(to, language, zone);
  const start = formatMinute(from, language, zone);
  if (range === "1h") return start;
  const day = range === "24h" ? "" : `${formatWeekday(from, language, zone)} `;
  return `${day}${start}–${formatMinute(to, language, zone)}`;
}

interface FrameProps<Of extends Span> {
  range: ChartRange;
  /** Parts of the range without gaps, oldest first. */
  intervals: readonly Of[];
  title: string;
  /** Series and their names. */
  legend: ReadonlyArray<readonly [series: string, name: string]>;
  top: string;
  label: string;
  /** Whether the chart is for a narrow column. */
  isSmall?: boolean;
  children: ReactNode;
  tip: (interval: Of) => ReactNode;
}

export function ChartFrame<Of extends Span>(props: FrameProps<Of>) {
  const { range, intervals, title, legend, top, label, isSmall, children, tip } = props;
  const { language, zone } = usePreferences();
  const [hover, setHover] = useState<Hover<Of> | null>(null);
  const from = intervals[0]?.from ?? 0;
  const to = intervals.at(-1)?.to ?? 1;
  const isDays = range === "7d" || range === "30d";
  const marks = axisMarks(range, from, to, zone)
    .map((at) => ({ at, percent: ((at - from) / (to - from)) * 100 }))
    .filter(({ percent }) => percent <= LABEL_MAX);
  return (
    <figure className={style.chart} data-small={isSmall || undefined}>
      <figcaption className={style.head}>
        <h3>{title}</h3>
        <span className={style.legend}>
          {legend.map(([series, name]) => (
            <span key={series}>
              <i data-series={series} aria-hidden />
              {name}
            </span>
          ))}
        </span>
      </figcaption>
      <span className={`${style.top} num`}>{top}</span>
      <div
        className={style.plot}
        onPointerLeave={() => setHover(null)}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const part = Math.max(0, Math.min(0.999, (event.clientX - box.left) / box.width));
          const pointed = from + part * (to - from);
          const interval = intervals.find((each) => pointed < each.to);
          if (interval) setHover({ interval, at: part * 100 });
        }}
      >
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
          <line x1="0" x2={WIDTH} y1="0.5" y2="0.5" className={style.gridLine} />
          <line x1="0" x2={WIDTH} y1={HEIGHT / 2} y2={HEIGHT / 2} className={style.gridLine} />
          <line x1="0" x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className={style.baseLine} />
          {children}
        </svg>
        {hover && (
          <div
            className={style.tip}
            style={{ left: `${hover.at}%` }}
            data-left={hover.at > TIP_LEFT_FROM || undefined}
          >
            <strong className="num">{intervalText(hover.interval, range, language, zone)}</strong>
            {tip(hover.interval)}
          </div>
        )}
      </div>
      <div className={`${style.marks} num`} aria-hidden>
        {marks.map(({ at, percent }) => (
          <span key={at} style={{ left: `${percent}%` }}>
            {isDays ? formatMonthDay(at, language, zone) : formatMinute(at, language, zone)}
          </span>
        ))}
      </div>
    </figure>
  );
}

export function TipRow({ series, name, value }: { series?: string; name: string; value: string }) {
  return (
    <span className={style.tipRow}>
      {series && <i data-series={series} />}
      {name} <b className="num">{value}</b>
    </span>
  );
}
