/** CPU or memory of a running execution in the last minutes, with its request. */

import { useTranslation } from "react-i18next";

import { formatBytes, formatCpu } from "../../lib/quantities";
import { formatUse, type Measured, measuredParts, type UsageSpan, usageTop } from "../../lib/usage";
import style from "./charts.module.css";
import { ChartFrame, HEIGHT, TipRow, WIDTH } from "./Frame";

interface UsageChartProps {
  resource: Measured;
  /** Parts of the last minutes without gaps, oldest first; the last one was measured. */
  spans: readonly UsageSpan[];
  /** Null if it is unknown. */
  request: number | null;
}

export function UsageChart({ resource, spans, request }: UsageChartProps) {
  const { t } = useTranslation();
  const [from, to] = [spans[0]?.from ?? 0, spans.at(-1)?.to ?? 1];
  const highest = Math.max(0, ...spans.map(({ use }) => use?.[resource] ?? 0));
  const top = usageTop(resource, highest, request);
  const x = (at: number) => round(((at - from) / (to - from)) * WIDTH);
  const y = (value: number) => round(HEIGHT - (value / top) * (HEIGHT - 4) - 1);
  const text = (value: number) => formatUse(resource, value, t);
  const requestText = request !== null && `${t("usage.request")} ${text(request)}`;
  return (
    <ChartFrame
      isSmall
      range="5m"
      intervals={spans}
      title={t(`usage.${resource}`)}
      legend={[
        ["used", t("usage.used")] as const,
        ...(requestText ? [["request", requestText] as const] : []),
      ]}
      top={resource === "cpu" ? formatCpu(top) : formatBytes(top)}
      label={t("usage.chartLabel", {
        resource: t(`usage.${resource}`),
        now: text(spans.at(-1)?.use?.[resource] ?? 0),
        max: text(highest),
      })}
      tip={({ use }) =>
        use ? (
          <TipRow series="used" name={t("usage.used")} value={text(use[resource])} />
        ) : (
          <span className={style.tipRow}>{t("usage.gap")}</span>
        )
      }
    >
      {measuredParts(spans).map((part) => {
        const start = x(part[0]?.from ?? 0);
        const steps = part.map(({ use, to }) => `V${y(use[resource])}H${x(to)}`).join("");
        const first = y(part[0]?.use[resource] ?? 0);
        return (
          <g key={start}>
            <path data-series="usedArea" d={`M${start} ${HEIGHT}${steps}V${HEIGHT}Z`} />
            <path className={style.usedLine} d={`M${start} ${first}${steps}`} />
          </g>
        );
      })}
      {request !== null && request <= top && (
        <line x1="0" x2={WIDTH} y1={y(request)} y2={y(request)} className={style.requestLine} />
      )}
    </ChartFrame>
  );
}

/** Rounds a coordinate: more digits only make the page larger. */
function round(value: number): number {
  return Math.round(value * 10) / 10;
}
