/** Results by day: of jobs from statistics, of runs from the newest runs. */

import { useElementSize } from "@mantine/hooks";
import { useQueries, useQuery } from "@tanstack/react-query";
import { type ReactNode, useCallback, useMemo } from "react";
import { useTranslation } from "react-i18next";

import { newestDaysQuery, pastDaysQuery, type SeriesSubject } from "../../api/statistics";
import { type CountedRunsFilter, earlierRunsQuery, todaysRunsQuery } from "../../api/workflows";
import {
  COUNTED_RUNS,
  countJobs,
  countRuns,
  dayOf,
  type DayCounts,
  type Days,
  firstKnownDay,
  joinRuns,
  lastWeeks,
  seriesParts,
  splitsHours,
} from "../../lib/days";
import { useNowAs } from "../../lib/now";
import { usePreferences } from "../../lib/preferences";
import { stringifySearch } from "../../lib/search";
import { zoneName } from "../../lib/time";
import type { Day } from "../../lib/year";
import { Card, ErrorBox, Loading } from "../kit";
import { HeatMap } from "./HeatMap";
import style from "./heatMap.module.css";

/** Widths from which the map has these weeks. */
const WEEKS: ReadonlyArray<readonly [width: number, weeks: number]> = [
  [700, 53],
  [440, 27],
  [0, 18],
];

/** Calls `children` with the days of the weeks that fit into the width. */
function LastDays({ children }: { children: (days: Days) => ReactNode }) {
  const { ref, width } = useElementSize();
  const { zone } = usePreferences();
  const today = useNowAs((now) => dayOf(now, zone));
  const weeks = WEEKS.find(([from]) => width >= from)?.[1] ?? 18;
  const days = useMemo(() => lastWeeks(weeks, today, zone), [weeks, today, zone]);
  return <div ref={ref}>{width > 0 ? children(days) : <Loading rows={5} />}</div>;
}

type JobsSubject = Pick<SeriesSubject, "job" | "namespace" | "schedule">;

export function JobDaysCard({ subject }: { subject: JobsSubject }) {
  const { t } = useTranslation();
  return (
    <Card title={t("days.title")}>
      <LastDays>{(days) => <JobDays subject={subject} days={days} />}</LastDays>
    </Card>
  );
}

function JobDays({ subject, days }: { subject: JobsSubject; days: Days }) {
  const { t } = useTranslation();
  const { job: name, namespace, schedule } = subject;
  const yesterday = days.starts.at(-3) ?? 0;
  const parts = [
    ...seriesParts(days).map((part) => pastDaysQuery(subject, part)),
    newestDaysQuery(subject, yesterday),
  ];
  const { series, error, refetch } = useQueries({
    queries: parts,
    combine: (results) => ({
      series: results.flatMap(({ data }) => data ?? []),
      error: results.find(({ error, data }) => error && !data)?.error ?? null,
      refetch: () => results.forEach((each) => void each.refetch()),
    }),
  });
  const counts = useMemo(() => countJobs(days, series), [days, series]);
  const href = useCallback(
    (after: string, before: string) =>
      `/jobs${stringifySearch({ name, namespace, schedule, after, before })}`,
    [name, namespace, schedule],
  );
  if (error) return <ErrorBox error={error} onRetry={refetch} />;
  if (series.length < parts.length) return <Loading rows={5} />;
  return (
    <>
      <HeatMap of="jobs" days={days} counts={counts} href={href} />
      <p className={style.hint}>
        {t("days.hint.jobs", { zone: zoneName(days.zone) })}
        {splitsHours(days) && ` ${t("days.splitHours")}`}
      </p>
    </>
  );
}

export function RunDaysCard({ filter }: { filter: CountedRunsFilter }) {
  const { t } = useTranslation();
  return (
    <Card title={t("days.title")}>
      <RunDays filter={filter} />
    </Card>
  );
}

export function RunDays({ filter }: { filter: CountedRunsFilter }) {
  return <LastDays>{(days) => <CountedRuns filter={filter} days={days} />}</LastDays>;
}

function CountedRuns({ filter, days }: { filter: CountedRunsFilter; days: Days }) {
  const { t } = useTranslation();
  const { language } = usePreferences();
  const startOfToday = new Date(days.starts.at(-2) ?? 0).toISOString();
  const today = useQuery(todaysRunsQuery(filter, startOfToday));
  const earlier = useQuery(earlierRunsQuery(filter, startOfToday));
  const counted = useMemo((): { counts: Map<Day, DayCounts>; knownFrom: Day | null } | null => {
    if (!today.data || !earlier.data) return null;
    const { runs, hasMore } = joinRuns(today.data, earlier.data);
    return { counts: countRuns(days, runs), knownFrom: firstKnownDay(days, runs, hasMore) };
  }, [days, today.data, earlier.data]);
  const { workflow, schedule } = filter;
  const href = useCallback(
    (after: string, before: string) => `/runs${stringifySearch({ workflow, schedule, after, before })}`,
    [workflow, schedule],
  );
  if (!counted) {
    const failed = [today, earlier].find(({ error, data }) => error && !data);
    if (!failed?.error) return <Loading rows={5} />;
    return <ErrorBox error={failed.error} onRetry={() => void failed.refetch()} />;
  }
  return (
    <>
      <HeatMap of="runs" days={days} {...counted} href={href} />
      <p className={style.hint}>
        {t("days.hint.runs", { zone: zoneName(days.zone) })}
        {counted.knownFrom && ` ${t("days.newest", { count: COUNTED_RUNS.toLocaleString(language) })}`}
      </p>
    </>
  );
}
