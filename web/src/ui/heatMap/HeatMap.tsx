/**
 * Heat map of days: a column for each week, a cell for each day. The strength of a cell shows the number; its parts, from
 * the bottom, show the fractions that failed, that were cancelled or expired, and that succeeded.
 */

import { VisuallyHidden } from "@mantine/core";
import { useRouter } from "@tanstack/react-router";
import { type CSSProperties, type KeyboardEvent, memo, type MouseEvent, useRef, useState } from "react";
import { useTranslation } from "react-i18next";

import { dayOnKey, type DayCounts, type Days, NOTHING, shares, strengthOf, totalOfDay } from "../../lib/days";
import { usePreferences } from "../../lib/preferences";
import { formatDay } from "../../lib/time";
import type { Day } from "../../lib/year";
import style from "./heatMap.module.css";

interface Props {
  of: "jobs" | "runs";
  days: Days;
  counts: ReadonlyMap<Day, DayCounts>;
  /** First day whose counts are known; null if all are. */
  knownFrom?: Day | null;
  /** Returns the address of the list of a day. */
  href: (after: string, before: string) => string;
}

interface Shown {
  day: Day;
  /** Position of the cell within the map, in px. */
  x: number;
  y: number;
  isRight: boolean;
}

const PARTS = ["succeeded", "failed", "other", "active"] as const;

/** Memoized: it has a cell and a label for each day of a year. */
export const HeatMap = memo(function HeatMap({ of, days, counts, knownFrom = null, href }: Props) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const router = useRouter();
  const grid = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState<Day | null>(null);
  const [shown, setShown] = useState<Shown | null>(null);
  const tabStop = current && days.days.includes(current) ? current : days.days.at(-1);
  const highest = Math.max(1, ...[...counts.values()].map(totalOfDay));
  const weekday = new Intl.DateTimeFormat(language, { weekday: "short", timeZone: "UTC" });

  const isKnown = (day: Day) => knownFrom === null || day >= knownFrom;
  const parts = (of: DayCounts) => PARTS.filter((part) => of[part] > 0);
  const label = (day: Day) => {
    const found = counts.get(day) ?? NOTHING;
    const head = isKnown(day) ? t(`days.total.${of}`, { count: totalOfDay(found) }) : t("days.unknown");
    const each = parts(found).map(
      (part) => `${t(`days.part.${part}`)} ${found[part].toLocaleString(language)}`,
    );
    return [`${formatDay(day, language)}${t("common.colon")}${head}`, ...each].join(
      t("common.listSeparator"),
    );
  };
  const addressOf = (day: Day) => {
    const at = days.days.indexOf(day);
    const iso = (time: number | undefined) => new Date(time ?? 0).toISOString();
    return href(iso(days.starts[at]), iso(days.starts[at + 1]));
  };
  const show = (day: Day, cell: HTMLElement) => {
    const box = grid.current;
    if (!box) return;
    const [inner, outer] = [cell.getBoundingClientRect(), box.getBoundingClientRect()];
    const x = inner.left - outer.left + inner.width / 2;
    setShown({ day, x, y: inner.bottom - outer.top, isRight: x > outer.width / 2 });
  };
  const onKey = (event: KeyboardEvent) => {
    const day = (event.target as HTMLElement).dataset.day;
    const next = day && !event.altKey && !event.ctrlKey && !event.metaKey && dayOnKey(days, day, event.key);
    if (!next) return;
    event.preventDefault();
    setCurrent(next);
    grid.current?.querySelector<HTMLElement>(`[data-day="${next}"]`)?.focus();
  };
  const open = (event: MouseEvent<HTMLAnchorElement>) => {
    // Other clicks open a tab or a menu of the browser.
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    router.history.push(event.currentTarget.getAttribute("href") ?? "/");
  };

  return (
    <div className={style.map} ref={grid} onPointerLeave={() => setShown(null)}>
      <Months days={days} />
      <div
        className={style.grid}
        role="grid"
        aria-label={t(`days.label.${of}`)}
        style={{ "--weeks": days.weeks.length } as CSSProperties}
        onKeyDown={onKey}
        data-testid="heat-map"
      >
        {Array.from({ length: 7 }, (_, row) => {
          const name = Date.UTC(2026, 0, 5 + row);
          return (
            <div key={row} role="row" className={style.row}>
              <span role="rowheader" className={style.weekday}>
                {row % 2 === 0 ? (
                  weekday.format(name)
                ) : (
                  <VisuallyHidden>{weekday.format(name)}</VisuallyHidden>
                )}
              </span>
              {days.weeks.map((week, column) => {
                const day = week[row];
                if (!day) return <span key={column} role="gridcell" />;
                const found = counts.get(day) ?? NOTHING;
                const { failed, other } = shares(found);
                const fractions = { "--failed": failed, "--other": failed + other } as CSSProperties;
                return (
                  <span key={column} role="gridcell">
                    <a
                      href={addressOf(day)}
                      className={style.day}
                      style={fractions}
                      data-day={day}
                      data-strength={strengthOf(totalOfDay(found), highest)}
                      data-unknown={!isKnown(day) || undefined}
                      aria-label={label(day)}
                      tabIndex={day === tabStop ? 0 : -1}
                      onClick={open}
                      onFocus={(event) => {
                        setCurrent(day);
                        show(day, event.currentTarget);
                      }}
                      onBlur={() => setShown(null)}
                      onPointerEnter={(event) => show(day, event.currentTarget)}
                    />
                  </span>
                );
              })}
            </div>
          );
        })}
      </div>
      {shown && (
        <div
          className={style.tip}
          style={{ left: shown.x, top: shown.y + 6 }}
          data-right={shown.isRight || undefined}
          // Screen readers read the label of the day.
          aria-hidden
          data-testid="day-tip"
        >
          <strong className="num">{formatDay(shown.day, language)}</strong>
          <Tip counts={counts.get(shown.day) ?? NOTHING} of={of} isKnown={isKnown(shown.day)} />
        </div>
      )}
      <Legend />
    </div>
  );
});

function Tip({ counts, of, isKnown }: { counts: DayCounts; of: Props["of"]; isKnown: boolean }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  if (!isKnown) return <span>{t("days.unknown")}</span>;
  return (
    <>
      <span>{t(`days.total.${of}`, { count: totalOfDay(counts) })}</span>
      {PARTS.filter((part) => counts[part] > 0).map((part) => (
        <span key={part} className={style.tipRow}>
          <i data-part={part} />
          {t(`days.part.${part}`)} <b className="num">{counts[part].toLocaleString(language)}</b>
        </span>
      ))}
    </>
  );
}

/** Columns between two names of months: a name is wider than a week. */
const MONTH_COLUMNS_MIN = 3;

/** The names of the months above the weeks in which they start. */
function Months({ days: { weeks } }: { days: Days }) {
  const { language } = usePreferences();
  const month = new Intl.DateTimeFormat(language, { month: "short", timeZone: "UTC" });
  const monthOf = (column: number) => weeks[column]?.find((day) => day !== null)?.slice(0, 7);
  const starts = weeks.flatMap((_, column) => {
    const name = monthOf(column);
    return name && name !== monthOf(column - 1) ? [{ column, name }] : [];
  });
  // The first month may have too few weeks left for its name.
  const shown = starts.filter(({ column }, i) => {
    const next = starts[i + 1]?.column ?? weeks.length;
    return next - column >= MONTH_COLUMNS_MIN || i > 0;
  });
  return (
    <div className={style.months} style={{ "--weeks": weeks.length } as CSSProperties} aria-hidden>
      {shown
        .filter(({ column }) => column <= weeks.length - 2)
        .map(({ column, name }) => (
          <span key={name} style={{ gridColumn: `${column + 2} / span ${MONTH_COLUMNS_MIN}` }}>
            {month.format(Date.parse(`${name}-01T00:00Z`))}
          </span>
        ))}
    </div>
  );
}

function Legend() {
  const { t } = useTranslation();
  const cell = (strength: number, failed: number, other: number) => (
    <i
      className={style.day}
      data-strength={strength}
      style={{ "--failed": failed, "--other": failed + other } as CSSProperties}
    />
  );
  return (
    <div className={style.legend} aria-hidden>
      <span>
        {t("days.fewer")}{" "}
        {[0, 1, 2, 3, 4].map((strength) => (
          <span key={strength}>{cell(strength, 0, 0)}</span>
        ))}{" "}
        {t("days.more")}
      </span>
      <span>
        {cell(4, 0.4, 0)} {t("days.part.failed")}
      </span>
      <span>
        {cell(4, 0, 0.5)} {t("days.part.other")}
      </span>
    </div>
  );
}
