/** Failed jobs of the last hours as tiny bars, newest last. */

import { useTranslation } from "react-i18next";

import type { FailedHour } from "../../lib/failures";
import style from "./charts.module.css";

const BAR_WIDTH = 4;
const HEIGHT = 20;
/** A single failure must be visible next to many. */
const BAR_MIN = 2;

export function Sparkline({ hours }: { hours: readonly FailedHour[] }) {
  const { t } = useTranslation();
  const most = Math.max(1, ...hours.map(({ failed }) => failed));
  const count = hours.reduce((sum, { failed }) => sum + failed, 0);
  const width = hours.length * BAR_WIDTH;
  return (
    <svg
      className={style.spark}
      viewBox={`0 0 ${width} ${HEIGHT}`}
      width={width}
      height={HEIGHT}
      role="img"
      aria-label={t("failureGroup.hoursLabel", { count, hours: hours.length })}
    >
      <line x1="0" x2={width} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} className={style.baseLine} />
      {hours.map(({ from, failed }, i) => {
        if (failed === 0) return null;
        const height = Math.max(BAR_MIN, (failed / most) * HEIGHT);
        return (
          <rect
            key={from}
            data-series="failed"
            x={i * BAR_WIDTH + 0.5}
            y={HEIGHT - height}
            width={BAR_WIDTH - 1}
            height={height}
          />
        );
      })}
    </svg>
  );
}
