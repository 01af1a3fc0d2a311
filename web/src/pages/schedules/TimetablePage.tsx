/** The timetable: a lane per schedule, and for a week a heatmap of firings per hour. */

import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { CalendarClock } from "lucide-react";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";

import { type TimetableRow, SCHEDULES_MAX, type Timetable, timetableQuery } from "../../api/schedules";
import { mergeFirings } from "../../lib/firingMarks";
import { usePreferences } from "../../lib/preferences";
import { formatDuration, parseDuration } from "../../lib/quantities";
import { clockHours, dayStarts, formatExact, formatMinute, formatWeekday } from "../../lib/time";
import { usePageTitle } from "../../lib/title";
import { Card, EmptyState, Loading, Page, ErrorBox } from "../../ui/kit";
import { RelativeTime } from "../../ui/Time";
import { Sections } from "./Sections";
import style from "./timetable.module.css";

const route = getRouteApi("/schedules/timetable");
const HOUR = 3_600_000;
const SPANS = { "24h": 24 * HOUR, "7d": 168 * HOUR } as const;
type Span = keyof typeof SPANS;

export function TimetablePage() {
  const { t } = useTranslation();
  usePageTitle(t("nav.timetable"));
  const navigate = route.useNavigate();
  const requested = route.useSearch().span;
  const span: Span = requested === "7d" ? "7d" : "24h";
  const { language, zone } = usePreferences();
  const { data, error, refetch } = useQuery(timetableQuery(SPANS[span]));

  return (
    <Page
      title={t("nav.timetable")}
      actions={
        <SegmentedControl
          aria-label={t("timetable.span")}
          value={span}
          onChange={(value) =>
            void navigate({ search: { span: value === "24h" ? undefined : value }, replace: true })
          }
          data={(["24h", "7d"] as const).map((value) => ({ value, label: t(`timetable.spans.${value}`) }))}
        />
      }
    >
      <Sections />
      {error && !data && <ErrorBox error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading rows={8} />}
      {data?.rows.length === 0 && (
        <EmptyState icon={CalendarClock} title={t("timetable.none")}>
          {t("timetable.noneText")}
        </EmptyState>
      )}
      {data && data.rows.length > 0 && (
        <>
          {data.completeUntil < data.to && (
            <p className={style.note}>
              {t("timetable.capped", { at: formatExact(data.completeUntil, language, zone) })}
            </p>
          )}
          {span === "7d" && <WeekHeatmap table={data} />}
          <DayLanes table={data} />
        </>
      )}
    </Page>
  );
}

/** Sorts schedules by their first firing. */
function byFirstFiring(rows: readonly TimetableRow[]): TimetableRow[] {
  const first = (row: TimetableRow) => row.firings[0] ?? row.completeUntil;
  return [...rows]
    .sort((a, b) => first(a) - first(b) || a.name.localeCompare(b.name))
    .slice(0, SCHEDULES_MAX);
}

function DayLanes({ table }: { table: Timetable }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const { from, to, rows } = table;
  const lanes = useMemo(() => byFirstFiring(rows), [rows]);
  const isDay = to - from <= 24 * HOUR;
  const ticks = isDay ? clockHours(from, to, 3, zone) : dayStarts(from, to, zone);
  const at = (time: number) => `${((time - from) / (to - from)) * 100}%`;
  return (
    <Card flush className={style.lanes}>
      <div className={style.axis} aria-hidden>
        <span />
        <div>
          {/* A tick at the edge would overflow the card. */}
          {ticks
            .filter((tick) => tick - from > (to - from) / 25)
            .map((tick) => (
              <time key={tick} style={{ left: at(tick) }}>
                {isDay ? formatMinute(tick, language, zone) : formatWeekday(tick, language, zone)}
              </time>
            ))}
        </div>
      </div>
      <ul data-testid="lanes">
        {lanes.map((lane) => (
          <li key={lane.id}>
            <span className={style.laneName}>
              <Link to="/schedules/$id" params={{ id: lane.id }} className="clip">
                {lane.name}
              </Link>
              <span className={`${style.laneNext} quiet`}>
                {lane.firings[0] !== undefined && (
                  <RelativeTime at={new Date(lane.firings[0]).toISOString()} light />
                )}
              </span>
            </span>
            <div className={style.track}>
              {ticks.map((tick) => (
                <s key={tick} style={{ left: at(tick) }} />
              ))}
              {lane.completeUntil < to && (
                <b style={{ left: at(lane.completeUntil) }}>{lane.when && <code>{lane.when}</code>}</b>
              )}
              <LaneMarks lane={lane} from={from} to={to} />
            </div>
            <span className={`${style.laneCount} quiet num`}>
              {lane.completeUntil < to
                ? t("timetable.timesOrMore", { count: lane.firings.length })
                : t("timetable.times", { count: lane.firings.length })}
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function LaneMarks({ lane, from, to }: { lane: TimetableRow; from: number; to: number }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const length = (lane.usualDuration && parseDuration(lane.usualDuration)) || 0;
  const durationText = length > 0 ? ` · ${t("timetable.usually", { length: formatDuration(length) })}` : "";
  return mergeFirings(lane.firings, from, to).map((mark) => {
    const end = Math.min(to, mark.to + length);
    const words =
      mark.count === 1
        ? formatExact(mark.from, language, zone)
        : `${formatExact(mark.from, language, zone)} – ${formatExact(mark.to, language, zone)} · ${t("timetable.times", { count: mark.count })}`;
    return (
      <i
        key={mark.from}
        title={`${lane.name}\n${words}${durationText}`}
        data-many={mark.count > 1 || undefined}
        style={{
          left: `${((mark.from - from) / (to - from)) * 100}%`,
          width: `max(4px, ${((end - mark.from) / (to - from)) * 100}%)`,
        }}
      />
    );
  });
}

/** Heatmap of days and hours in the chosen zone: the darker, the more firings. */
function WeekHeatmap({ table }: { table: Timetable }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const { from, to, rows, completeUntil } = table;
  // Schedules that fire constantly would hide the others.
  const frequent = rows.filter((row) => row.completeUntil < to);
  const days = useMemo(() => {
    const firings = rows.filter((row) => row.completeUntil >= to).flatMap((row) => row.firings);
    const starts = dayStarts(from - 24 * HOUR, to, zone);
    return starts.map((start, index) => {
      const end = starts[index + 1] ?? start + 24 * HOUR;
      const hours = Array.from({ length: 24 }, () => 0);
      for (const at of firings) {
        if (at < start || at >= end) continue;
        const hour = Number(formatMinute(at, "en", zone).slice(0, 2));
        hours[hour] = (hours[hour] ?? 0) + 1;
      }
      return { start, hours };
    });
  }, [rows, from, to, zone]);
  const countMax = Math.max(1, ...days.flatMap((day) => day.hours));
  return (
    <Card
      title={t("timetable.week")}
      aside={
        frequent.length > 0 ? t("timetable.without", { count: frequent.length }) : t("timetable.weekHint")
      }
    >
      <div className={style.weekScroll} tabIndex={0} role="group" aria-label={t("timetable.week")}>
        <table className={style.week}>
          <thead>
            <tr>
              <td />
              {Array.from({ length: 24 }, (_, hour) => (
                <th key={hour} scope="col">
                  {hour}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {days.map(({ start, hours }) => (
              <tr key={start}>
                <th scope="row">{formatWeekday(start, language, zone)}</th>
                {hours.map((count, hour) => (
                  <td
                    key={hour}
                    data-unknown={start + hour * HOUR > completeUntil || undefined}
                    data-past={start + (hour + 1) * HOUR <= from || undefined}
                    style={
                      count > 0
                        ? {
                            background: `color-mix(in srgb, var(--chart-line) ${14 + 46 * Math.sqrt(count / countMax)}%, transparent)`,
                          }
                        : undefined
                    }
                  >
                    {count > 0 ? count : ""}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
