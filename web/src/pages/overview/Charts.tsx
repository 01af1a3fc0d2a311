/** Small charts of the last hour, in plain SVG: two charts need no library. */

import { useState } from "react";
import { useTranslation } from "react-i18next";

import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { niceCeiling, quantile, type MinuteBucket } from "../../lib/chartSeries";
import { formatMinute } from "../../lib/time";
import style from "./overview.module.css";

const HEIGHT = 120;

interface Hover {
  bucket: MinuteBucket;
  /** Position in percent of the width. */
  at: number;
}

function ChartFrame(props: {
  buckets: readonly MinuteBucket[];
  top: string;
  label: string;
  children: React.ReactNode;
  tip: (bucket: MinuteBucket) => React.ReactNode;
}) {
  const { buckets, top, label, children, tip } = props;
  const { language, zone } = usePreferences();
  const [hover, setHover] = useState<Hover | null>(null);
  const marks = buckets.filter((_, i) => i % 15 === 14);
  return (
    <div className={style.chart}>
      <span className={`${style.top} num`}>{top}</span>
      <div
        className={style.plot}
        onMouseLeave={() => setHover(null)}
        onMouseMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          const part = Math.max(0, Math.min(0.999, (event.clientX - box.left) / box.width));
          const bucket = buckets[Math.floor(part * buckets.length)];
          if (bucket) setHover({ bucket, at: part * 100 });
        }}
      >
        <svg viewBox={`0 0 600 ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
          <line x1="0" x2="600" y1="0.5" y2="0.5" className={style.gridLine} />
          <line x1="0" x2="600" y1={HEIGHT / 2} y2={HEIGHT / 2} className={style.gridLine} />
          <line x1="0" x2="600" y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className={style.baseLine} />
          {children}
        </svg>
        {hover && (
          <div className={style.tip} style={{ left: `${hover.at}%` }} data-left={hover.at > 60 || undefined}>
            <strong className="num">{formatMinute(hover.bucket.from, language, zone)}</strong>
            {tip(hover.bucket)}
          </div>
        )}
      </div>
      <div className={`${style.marks} num`} aria-hidden>
        {marks.map((bucket) => (
          <span key={bucket.from}>{formatMinute(bucket.from, language, zone)}</span>
        ))}
      </div>
    </div>
  );
}

const SERIES = ["succeeded", "failed", "other"] as const;

export function Throughput({ buckets }: { buckets: readonly MinuteBucket[] }) {
  const { t } = useTranslation();
  const sum = (bucket: MinuteBucket) => bucket.succeeded + bucket.failed + bucket.other;
  const top = niceCeiling(Math.max(1, ...buckets.map(sum)));
  const total = buckets.reduce((all, bucket) => all + sum(bucket), 0);
  const width = 600 / buckets.length;
  return (
    <ChartFrame
      buckets={buckets}
      top={top.toLocaleString()}
      label={t("overview.throughputLabel", { count: total })}
      tip={(bucket) =>
        SERIES.map((key) => (
          <span key={key} className={style.tipRow}>
            <i data-series={key} />
            {t(`overview.series.${key}`)} <b className="num">{bucket[key]}</b>
          </span>
        ))
      }
    >
      {buckets.map((bucket, i) => {
        let y = HEIGHT;
        return SERIES.map((key) => {
          const height = (bucket[key] / top) * HEIGHT;
          if (height === 0) return null;
          y -= height;
          return (
            <rect
              key={`${bucket.from}${key}`}
              data-series={key}
              x={i * width + 1}
              y={y}
              width={width - 2}
              height={height}
            />
          );
        });
      })}
    </ChartFrame>
  );
}

export function Delays({ buckets }: { buckets: readonly MinuteBucket[] }) {
  const { t } = useTranslation();
  const points = buckets.map(
    (bucket) => [quantile(bucket.delays, 0.5), quantile(bucket.delays, 0.95)] as const,
  );
  const top = niceCeiling(Math.max(1, ...points.map(([, p95]) => p95 ?? 0)));
  const width = 600 / buckets.length;
  const y = (value: number) => HEIGHT - (value / top) * (HEIGHT - 4) - 1;
  const all = buckets.flatMap((bucket) => bucket.delays);
  return (
    <ChartFrame
      buckets={buckets}
      top={formatDuration(top)}
      label={t("overview.delayLabel", { p95: formatDuration(quantile(all, 0.95) ?? 0) })}
      tip={(bucket) => {
        const [p50, p95] = [quantile(bucket.delays, 0.5), quantile(bucket.delays, 0.95)];
        if (p50 === null || p95 === null)
          return <span className={style.tipRow}>{t("overview.noStarts")}</span>;
        return (
          <>
            <span className={style.tipRow}>
              {t("overview.median")} <b className="num">{formatDuration(p50)}</b>
            </span>
            <span className={style.tipRow}>
              p95 <b className="num">{formatDuration(p95)}</b>
            </span>
          </>
        );
      }}
    >
      {points.map(([p50, p95], i) =>
        p50 === null || p95 === null ? null : (
          <g key={buckets[i]?.from}>
            <rect
              className={style.range}
              x={i * width + 2}
              y={y(p95)}
              width={width - 4}
              height={Math.max(2, y(p50) - y(p95))}
            />
            <rect className={style.median} x={i * width + 1} y={y(p50) - 1} width={width - 2} height={2.5} />
          </g>
        ),
      )}
    </ChartFrame>
  );
}
