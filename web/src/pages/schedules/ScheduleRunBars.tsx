/** Runs of a schedule as bars, newest last: height is the duration, colour and shape the result. */

import { Link } from "@tanstack/react-router";
import type { ComponentProps } from "react";
import { useTranslation } from "react-i18next";

import type { JobStatus, RunStatus, Schedule, ScheduleRun } from "../../api/schema";
import { usePreferences } from "../../lib/preferences";
import { formatDuration } from "../../lib/quantities";
import { formatExact } from "../../lib/time";
import style from "./schedules.module.css";

/** `runs` is newest first. */
export function ScheduleRunBars({ runs, linked }: { runs: readonly ScheduleRun[]; linked?: boolean }) {
  const { t } = useTranslation();
  const { language, zone } = usePreferences();
  const longest = Math.max(1, ...runs.map(runDuration));
  const words = (run: ScheduleRun) =>
    [
      formatExact(run.scheduled_for, language, zone),
      run.run_id ? t(`runStatus.${run.status as RunStatus}`) : t(`status.${run.status as JobStatus}`),
      run.started_at && run.finished_at ? formatDuration(runDuration(run)) : null,
    ]
      .filter(Boolean)
      .join(" · ");
  const bars = [...runs].reverse().map((run) => {
    const bar = <i style={{ height: `${16 + 84 * Math.sqrt(runDuration(run) / longest)}%` }} />;
    const id = run.run_id ?? run.job_id ?? "";
    return linked ? (
      <Link
        key={id}
        to={run.run_id ? "/runs/$id" : "/jobs/$id"}
        params={{ id }}
        data-result={run.status}
        title={words(run)}
        aria-label={words(run)}
      >
        {bar}
      </Link>
    ) : (
      <span key={id} data-result={run.status} title={words(run)}>
        {bar}
      </span>
    );
  });
  const ended = runs.filter((run) => run.status === "failed").length;
  return linked ? (
    <nav className={style.runs} data-large aria-label={t("schedule.recentRuns")}>
      {bars}
    </nav>
  ) : (
    <span
      className={style.runs}
      role="img"
      aria-label={t("schedule.runsLabel", { count: runs.length, failed: ended })}
    >
      {bars}
    </span>
  );
}

interface AllRunsLinkProps extends Omit<ComponentProps<typeof Link>, "to" | "search" | "params"> {
  schedule: Schedule;
  /** Only active runs. */
  activeOnly?: boolean;
}

/** Links to the schedule's jobs, or to its workflow runs. */
export function AllRunsLink({ schedule: { id, spec }, activeOnly, ...rest }: AllRunsLinkProps) {
  if (spec?.workflow) {
    const status = activeOnly ? "waiting,running,paused,stopping" : undefined;
    return <Link {...rest} to="/runs" search={{ schedule: id, status }} />;
  }
  const status = activeOnly ? "ready,waiting,running,retrying" : undefined;
  return <Link {...rest} to="/jobs" search={{ schedule: id, status }} />;
}

/** Returns the duration in milliseconds; of an active run until now. */
function runDuration(run: ScheduleRun): number {
  if (!run.started_at) return 0;
  return (run.finished_at ? Date.parse(run.finished_at) : Date.now()) - Date.parse(run.started_at);
}
