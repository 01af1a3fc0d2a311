/** Charts of a range of time, in plain SVG: a few small charts need no library. */

import { useTranslation } from "react-i18next";

import type { FailedHour } from "../../lib/failures";
import { formatDuration } from "../../lib/quantities";
import { type Interval, niceCeiling, type Quantiles, type Range } from "../../lib/statistics";
import style from "./charts.module.css";
import { ChartFrame, HEIGHT, type Span, TipRow, WIDTH } from "./Frame";

export interface ChartProps<Of extends Span = Interval> {
  range: Range;
  intervals: readonly Of[];
}

/** Stacked bars of counts. */
function Bars<Series extends string, Of extends Span = Interval>(
  props: ChartProps<Of> & {
    series: readonly Series[];
    title: string;
    label: string;
    name: (series: Series) => string;
    count: (interval: Of, series: Series) => number;
  },
) {
  const { intervals, series, name, count } = props;
  const sum = (interval: Of) => series.reduce((all, key) => all + count(interval, key), 0);
  const top = niceCeiling(Math.max(1, ...intervals.map(sum)));
  const width = WIDTH / intervals.length;
  const gap = width / 5;
  return (
    <ChartFrame
      {...props}
      legend={series.map((key) => [key, name(key)])}
      top={top.toLocaleString()}
      tip={(interval) =>
        series.map((key) => (
          <TipRow key={key} series={key} name={name(key)} value={count(interval, key).toLocaleString()} />
        ))
      }
    >
      {intervals.map((interval, i) => {
        let y = HEIGHT;
        return series.map((key) => {
          const height = (count(interval, key) / top) * HEIGHT;
          if (height === 0) return null;
          y -= height;
          return (
            <rect
              key={`${interval.from}${key}`}
              data-series={key}
              x={i * width + gap / 2}
              y={y}
              width={width - gap}
              height={height}
            />
          );
        });
      })}
    </ChartFrame>
  );
}

const OUTCOMES = ["succeeded", "failed", "other"] as const;

/** Ended jobs by outcome; `total` is their number in the whole range. */
export function EndedJobs(props: ChartProps & { total: number }) {
  const { t } = useTranslation();
  const { range, total } = props;
  return (
    <Bars
      {...props}
      series={OUTCOMES}
      title={t(`chart.ended.${range}`)}
      label={t("chart.endedLabel", { count: total, range: t(`chart.ranges.${range}`) })}
      name={(series) => t(`chart.series.${series}`)}
      count={(interval, series) => interval[series]}
    />
  );
}

/** Submitted jobs; `total` is their number in the whole range. */
export function SubmittedJobs(props: ChartProps & { total: number }) {
  const { t } = useTranslation();
  const { range, total } = props;
  return (
    <Bars
      {...props}
      series={["submitted"]}
      title={t(`chart.submitted.${range}`)}
      label={t("chart.submittedLabel", { count: total, range: t(`chart.ranges.${range}`) })}
      name={(series) => t(`chart.series.${series}`)}
      count={(interval, series) => interval[series]}
    />
  );
}

/** Failed jobs per hour of a failure group. */
export function FailedJobs({ hours }: { hours: readonly FailedHour[] }) {
  const { t } = useTranslation();
  const count = hours.reduce((sum, { failed }) => sum + failed, 0);
  return (
    <Bars
      range="7d"
      intervals={hours}
      series={["failed"]}
      title={t("failureGroup.hours")}
      label={t("failureGroup.hoursLabel", { count, hours: hours.length })}
      name={(series) => t(`chart.series.${series}`)}
      count={(hour, series) => hour[series]}
    />
  );
}

const LEVELS = ["running", "waiting"] as const;

/** Highest numbers of running and waiting jobs. */
export function Levels(props: ChartProps & { hasWaiting: boolean }) {
  const { t } = useTranslation();
  const { range, intervals, hasWaiting } = props;
  const series = hasWaiting ? LEVELS : LEVELS.slice(0, 1);
  const highest = (key: (typeof LEVELS)[number]) =>
    Math.max(0, ...intervals.map(({ levels }) => levels?.[key] ?? 0)).toLocaleString();
  return (
    <Bars
      {...props}
      series={series}
      title={t(hasWaiting ? "chart.levels" : "chart.runningLevel")}
      label={
        hasWaiting
          ? t("chart.levelsLabel", {
              running: highest("running"),
              waiting: highest("waiting"),
              range: t(`chart.ranges.${range}`),
            })
          : t("chart.runningLevelLabel", {
              running: highest("running"),
              range: t(`chart.ranges.${range}`),
            })
      }
      name={(key) => t(`status.${key}`)}
      count={(interval, key) => interval.levels?.[key] ?? 0}
    />
  );
}

/** Median and 95th percentile of durations; `total` are those of the whole range. */
export function Durations(props: ChartProps & { kind: "startDelay" | "runTime"; total: Quantiles | null }) {
  const { t } = useTranslation();
  const { range, intervals, kind, total } = props;
  const top = niceDuration(Math.max(1, ...intervals.map((interval) => interval[kind]?.p95 ?? 0)));
  const width = WIDTH / intervals.length;
  const gap = width / 5;
  const y = (value: number) => HEIGHT - (value / top) * (HEIGHT - 4) - 1;
  return (
    <ChartFrame
      {...props}
      title={t(`chart.${kind}`)}
      legend={[
        ["median", t("chart.median")],
        ["p95", "p95"],
      ]}
      top={formatDuration(top)}
      label={
        total
          ? t(`chart.${kind}Label`, { p95: formatDuration(total.p95), range: t(`chart.ranges.${range}`) })
          : t(`chart.${kind}None`, { range: t(`chart.ranges.${range}`) })
      }
      tip={(interval) => {
        const of = interval[kind];
        if (!of) return <span className={style.tipRow}>{t(`chart.${kind}Nothing`)}</span>;
        return (
          <>
            <TipRow series="median" name={t("chart.median")} value={formatDuration(of.p50)} />
            <TipRow series="p95" name="p95" value={formatDuration(of.p95)} />
          </>
        );
      }}
    >
      {intervals.map((interval, i) => {
        const of = interval[kind];
        if (!of) return null;
        const x = i * width + gap / 2;
        return (
          <g key={interval.from}>
            <rect
              data-series="p95"
              x={x}
              y={y(of.p95)}
              width={width - gap}
              height={Math.max(2, y(of.p50) - y(of.p95))}
            />
            <rect data-series="median" x={x} y={y(of.p50) - 1} width={width - gap} height={2.5} />
          </g>
        );
      })}
    </ChartFrame>
  );
}

/** Returns a duration that is not shorter and is round in its unit, in milliseconds. */
function niceDuration(ms: number): number {
  const unit = [86_400_000, 3_600_000, 60_000, 1_000].find((each) => ms > each) ?? 1;
  return niceCeiling(ms / unit) * unit;
}
